package front

import (
	"context"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// ChainPath is where the server shows its chain. The users who may get it are the
// operators of this server.
const ChainPath = "/debug/catena/chain"

// DashboardPath is where people see the chain. What it consists of is below.
const DashboardPath = "/debug/catena/"

// operatorTimeout bounds the question whether a user is an operator, which an authorization
// webhook may have to decide.
const operatorTimeout = time.Second

// HandleChain makes a handler serve ChainPath, after the filters. It is to be called
// before Run.
func (f *Frontend) HandleChain(h http.Handler) {
	f.server.Handler.NonGoRestfulMux.UnlistedHandle(ChainPath, sandboxed(h))
}

// sandboxed keeps browsers from executing anything of what stages have a part in: it is in the origin of the API.
func sandboxed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		h.ServeHTTP(w, r)
	})
}

// HandleDashboard makes a handler serve DashboardPath and all paths below it that have no other handler, after the filters. It
// is to be called before Run.
func (f *Frontend) HandleDashboard(h http.Handler) {
	mux := f.server.Handler.NonGoRestfulMux
	mux.UnlistedHandle(strings.TrimSuffix(DashboardPath, "/"), http.RedirectHandler(DashboardPath, http.StatusMovedPermanently))
	mux.UnlistedHandlePrefix(DashboardPath, h)
}

// StagePagesPath is where pages about the processes of stages are: NAME/PAGE below it.
const StagePagesPath = "/debug/catena/stages/"

// HandleStagePages makes a handler serve what is below StagePagesPath, after the filters. It is to be called
// before Run.
func (f *Frontend) HandleStagePages(h http.Handler) {
	f.server.Handler.NonGoRestfulMux.UnlistedHandlePrefix(StagePagesPath, sandboxed(h))
}

// isProfile reports whether a request may take as long as its client likes, as those of /debug/pprof/ may.
func isProfile(info *request.RequestInfo) bool {
	stage, page, _ := strings.Cut(strings.TrimPrefix(info.Path, StagePagesPath), "/")
	return !info.IsResourceRequest && strings.HasPrefix(info.Path, StagePagesPath) && stage != "" && strings.HasPrefix(page, "pprof/")
}

// PageError responds to a request for a page with an error.
func (f *Frontend) PageError(w http.ResponseWriter, r *http.Request, code int, message string) {
	reason := apierrors.NewGenericServerResponse(code, r.Method, schema.GroupResource{}, "", "", 0, false).ErrStatus.Reason
	f.writer.write(w, r, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}})
}

// isOperator reports whether the user of a request may see details of the chain.
func (f *Frontend) isOperator(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	if !ok || f.server.Authorizer == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operatorTimeout)
	defer cancel()
	decision, _, err := f.server.Authorizer.Authorize(ctx, authorizer.AttributesRecord{User: u, Verb: "get", Path: ChainPath})
	return err == nil && decision == authorizer.DecisionAllow
}

// UserName returns the name of the user of a request, or "".
func UserName(r *http.Request) string {
	if u, ok := request.UserFrom(r.Context()); ok {
		return u.GetName()
	}
	return ""
}
