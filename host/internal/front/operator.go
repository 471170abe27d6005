package front

import (
	"context"
	"net/http"
	"strings"
	"time"

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
	f.server.Handler.NonGoRestfulMux.UnlistedHandle(ChainPath, h)
}

// HandleDashboard makes a handler serve DashboardPath and all paths below it that have no other handler, after the filters. It
// is to be called before Run.
func (f *Frontend) HandleDashboard(h http.Handler) {
	mux := f.server.Handler.NonGoRestfulMux
	mux.UnlistedHandle(strings.TrimSuffix(DashboardPath, "/"), http.RedirectHandler(DashboardPath, http.StatusMovedPermanently))
	mux.UnlistedHandlePrefix(DashboardPath, h)
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

// UserName returns the name of the user of a request, "" if there is none.
func UserName(r *http.Request) string {
	if u, ok := request.UserFrom(r.Context()); ok {
		return u.GetName()
	}
	return ""
}
