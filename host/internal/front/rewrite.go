package front

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/internal/requestinfo"
)

// rewriteAnnotation, with the name of the stage, is the audit annotation of a request that
// a stage has handed on with another method, path or query: what it has become.
const rewriteAnnotation = "rewrite.catena.dev/"

// AuthorizeRewritten decides whether the user of a request, which the context of r belongs to,
// may make r, and records in the audit event which stage has made r of it. It returns the
// request to hand on, or responds and returns false.
func (f *Frontend) AuthorizeRewritten(w http.ResponseWriter, r *http.Request, stage string) (*http.Request, bool) {
	info, err := requestinfo.Factory().NewRequestInfo(r)
	if err != nil {
		f.writer.write(w, r, apierrors.NewBadRequest(err.Error()))
		return nil, false
	}
	ctx := request.WithRequestInfo(r.Context(), info)
	attributes, err := genericapifilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		f.writer.write(w, r, apierrors.NewInternalError(err))
		return nil, false
	}
	auditRewrite(r, stage)
	decision, reason, err := f.server.Authorizer.Authorize(ctx, attributes)
	if decision == authorizer.DecisionAllow {
		return r.WithContext(ctx), true
	}
	if err != nil {
		f.writer.write(w, r, apierrors.NewInternalError(err))
		return nil, false
	}
	responsewriters.Forbidden(attributes, w, r, reason, f.writer.serializer)
	return nil, false
}

// auditRewrite adds an annotation to the audit event. Annotations cannot change, so that
// each further request that the stage makes of the same one gets another, up to a bound.
func auditRewrite(r *http.Request, stage string) {
	const most = 10
	event, text := audit.AuditContextFrom(r.Context()), r.Method+" "+r.URL.RequestURI()
	if event == nil {
		return
	}
	for n := 1; n <= most; n++ {
		key := rewriteAnnotation + stage
		if n > 1 {
			key += fmt.Sprintf(".%d", n)
		}
		switch before, ok := event.GetEventAnnotation(key); {
		case !ok:
			audit.AddAuditAnnotation(r.Context(), key, text)
			return
		case before == text:
			return
		}
	}
}

// AuditAgain serves what a stage hands on after another request that may have written, both made of the one that the
// context of r belongs to. Its event names that, which has been recorded already, by its id.
func (f *Frontend) AuditAgain(w http.ResponseWriter, r *http.Request, stage string, serve http.HandlerFunc) {
	auditRewrite(r, stage)
	id, ok := audit.AuditIDFrom(r.Context())
	if !ok || f.audit == nil {
		serve(w, r)
		return
	}
	ctx := audit.WithAuditContext(unaudited{r.Context()})
	audit.WithAuditID(ctx, id)
	genericapifilters.WithAudit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auditRewrite(r, stage)
		serve(w, r)
	}), f.server.AuditBackend, f.audit, f.longRunning).ServeHTTP(w, r.WithContext(ctx))
}

// unaudited is the context of a request without its audit event.
type unaudited struct{ context.Context }

func (c unaudited) Value(key any) any {
	value := c.Context.Value(key)
	if _, ok := value.(*audit.AuditContext); ok {
		return nil
	}
	return value
}

// Refuse responds to a request of a stage that it is not granted to make.
func (f *Frontend) Refuse(w http.ResponseWriter, r *http.Request, refusal relay.Refusal) {
	f.metrics.refusals.WithLabelValues(refusal.Stage, refusal.Grant).Inc()
	f.writer.write(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf(
		"stage %q may not %s: that needs stages.%s.grants.%s", refusal.Stage, refusal.Reason, refusal.Stage, refusal.Grant)))
}

// IsSystemRequest reports whether a request is made by the host itself, or by a stage in its
// name.
func IsSystemRequest(r *http.Request) bool {
	u, ok := request.UserFrom(r.Context())
	return ok && u.GetName() == user.APIServerUser
}
