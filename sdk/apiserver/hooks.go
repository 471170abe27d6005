package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
)

// hookPoll is how often a running post-start hook is looked at. Kubernetes keeps the
// channel that is closed at its end to itself, behind a health check.
const hookPoll = 10 * time.Millisecond

// hookCheck, followed by the name of a post-start hook, is the name of that check.
const hookCheck = "poststarthook/"

// serverHooks runs the hooks of a prepared server one by one. The methods that
// GenericAPIServer has for it run all hooks of a map; PostStartHooks and
// PreShutdownHooks return these maps themselves, so that a hook is run by calling the
// server's method while the map has no other.
type serverHooks struct {
	server *genericapiserver.GenericAPIServer
	// checks pass when their post-start hook has returned.
	checks map[string]healthz.HealthChecker
	mu     sync.Mutex
}

// registerHooks hands the hooks of a prepared server to the host, under their own names.
// A post-start hook that fails ends the process with its name in the last log line, as
// it ends kube-apiserver.
func (a *Adapter) registerHooks(server Server) {
	h := &serverHooks{server: server.GenericAPIServer, checks: map[string]healthz.HealthChecker{}}
	for _, check := range server.HealthzChecks() {
		h.checks[check.Name()] = check
	}
	for _, name := range slices.Sorted(maps.Keys(server.PostStartHooks())) {
		a.env.PostStartHook(name, func(ctx context.Context) error {
			if server.BeforePostStartHook != nil {
				server.BeforePostStartHook(ctx, name)
			}
			return h.runPostStart(ctx, name)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(server.PreShutdownHooks())) {
		a.env.PreShutdownHook(name, func(context.Context) error {
			if server.PreShutdownWithServer && a.replaced() {
				return nil
			}
			return h.runPreShutdown(name)
		})
	}
}

// replaced reports whether the server goes on without this process: only then the host
// drains it before it runs its pre-shutdown hooks.
func (a *Adapter) replaced() bool {
	select {
	case <-a.env.Draining():
		return true
	default:
		return false
	}
}

// runPostStart starts a post-start hook and returns when it has returned.
func (h *serverHooks) runPostStart(ctx context.Context, name string) error {
	h.mu.Lock()
	only(h.server.PostStartHooks(), name, func() { h.server.RunPostStartHooks(ctx) })
	h.mu.Unlock()
	return waitFor(ctx, h.checks[hookCheck+name])
}

// runPreShutdown runs a pre-shutdown hook. They run one after the other, as Kubernetes'
// do.
func (h *serverHooks) runPreShutdown(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	only(h.server.PreShutdownHooks(), name, func() { err = h.server.RunPreShutdownHooks() })
	if err == nil {
		return nil
	}
	// The host names the hook.
	return errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("PreShutdownHook %q failed: ", name)))
}

// only calls run while hooks has the entry name alone.
func only[H any](hooks map[string]H, name string, run func()) {
	others := maps.Clone(hooks)
	delete(others, name)
	for other := range others {
		delete(hooks, other)
	}
	defer maps.Copy(hooks, others)
	run()
}

func waitFor(ctx context.Context, check healthz.HealthChecker) error {
	if check == nil {
		return nil
	}
	tick := time.NewTicker(hookPoll)
	defer tick.Stop()
	for check.Check(nil) != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", check.Name(), context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// serveDebug serves the server's debug socket, if it has one, until the stage stops.
func (a *Adapter) serveDebug(server *genericapiserver.GenericAPIServer) {
	socket := server.UnprotectedDebugSocket
	if socket == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := socket.RunWithContext(a.env.Context()); !errors.Is(err, http.ErrServerClosed) {
			a.env.Log.Error("debug socket is not served", "error", err)
		}
	}()
	a.env.OnDestroy(func() { <-ended }) // it removes the socket
}

// serveZPages makes those pages of Kubernetes' components debug pages that the server has.
func (a *Adapter) serveZPages(server *genericapiserver.GenericAPIServer) {
	for _, page := range []string{"statusz", "flagz"} {
		if slices.Contains(server.Handler.NonGoRestfulMux.ListedPaths(), "/"+page) {
			a.env.DebugPage(page, server.Handler.NonGoRestfulMux)
		}
	}
}
