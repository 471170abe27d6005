package front

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Target is what a request is about.
type Target struct {
	Verb, Group, Version, Name, Subresource, Namespace string
}

// TargetOf returns what a request of a client is about; it is zero if that is not a resource. ok is false for requests of Kubernetes'
// own servers.
func TargetOf(r *http.Request) (t Target, ok bool) {
	if u, known := request.UserFrom(r.Context()); !known || u.GetName() == user.APIServerUser {
		return t, false
	}
	info, ok := request.RequestInfoFrom(r.Context())
	if ok && info.IsResourceRequest {
		t = Target{
			Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Name: info.Resource,
			Subresource: info.Subresource, Namespace: info.Namespace,
		}
	}
	return t, ok
}

// Again returns a function that gives a context what a stage has to know of a request which has passed the filters: its user,
// and what it is about. Such a request is in no audit event, and does not count for priority and fairness.
func Again(original context.Context) func(context.Context) context.Context {
	u, hasUser := request.UserFrom(original)
	info, hasInfo := request.RequestInfoFrom(original)
	return func(ctx context.Context) context.Context {
		if hasUser {
			ctx = request.WithUser(ctx, u)
		}
		if hasInfo {
			ctx = request.WithRequestInfo(ctx, info)
		}
		return request.WithReceivedTimestamp(ctx, time.Now())
	}
}
