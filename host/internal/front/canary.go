package front

import (
	"net"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/host/internal/canary"
)

// CanaryKey returns what a request has in common with those that are on one side of a canary together with it. It reports
// false if the request stays with the old process: one of the host itself or, if namespaces move, one outside of them.
func CanaryKey(r *http.Request, by canary.By) (key string, ok bool) {
	if IsSystemRequest(r) {
		return "", false
	}
	switch by {
	case canary.Namespace:
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Namespace == "" {
			return "", false
		}
		return "namespace " + info.Namespace, true
	case canary.User:
		return "user " + UserName(r), true
	}
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	return "client " + UserName(r) + " " + address + " " + r.UserAgent(), true
}

// CanaryKind returns what kind of request it is, and whether it lasts as long as its client likes.
func (f *Frontend) CanaryKind(r *http.Request) (kind canary.Kind, streams bool) {
	info, ok := request.RequestInfoFrom(r.Context())
	switch {
	case !ok:
		return canary.Kind{Verb: strings.ToLower(r.Method), Resource: "paths"}, false
	case !info.IsResourceRequest:
		return canary.Kind{Verb: info.Verb, Resource: "paths"}, f.longRunning(r, info)
	}
	kind = canary.Kind{Verb: info.Verb, Resource: info.Resource}
	if info.APIGroup != "" {
		kind.Resource += "." + info.APIGroup
	}
	if info.Subresource != "" {
		kind.Resource += "/" + info.Subresource
	}
	return kind, f.longRunning(r, info)
}

// IsWatch reports whether a request is a watch.
func IsWatch(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	return ok && info.IsResourceRequest && info.Verb == "watch"
}
