package kube

import (
	"context"
	"fmt"
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
)

// earlyHook is a post-start hook that pauses before its first request, as Kubernetes' rbac/bootstrap-roles does for a second. It is begun while the server
// is built, so that the pause passes meanwhile. Its requests wait until it is due, so that it does nothing earlier than it would.
type earlyHook struct {
	hook genericapiserver.PostStartHookFunc
	due  chan struct{} // closed by run
	done chan error
}

// beginHook begins the hook with the clients that config makes. One that is never due waits until its process ends.
func beginHook(ctx context.Context, hook genericapiserver.PostStartHookFunc, config *rest.Config) *earlyHook {
	h := &earlyHook{hook: hook, due: make(chan struct{}), done: make(chan error, 1)}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &dueTransport{next, h.due} })
	go func() {
		defer func() {
			if p := recover(); p != nil {
				h.done <- fmt.Errorf("panic: %v", p)
			}
		}()
		h.done <- hook(genericapiserver.PostStartHookContext{Context: ctx, LoopbackClientConfig: config})
	}()
	return h
}

// run is the hook as the server runs it. Should what has begun early fail, since its time was almost over when it was due, the hook is run once more, with all of its time.
func (h *earlyHook) run(due genericapiserver.PostStartHookContext) error {
	close(h.due)
	if err := <-h.done; err == nil {
		return nil
	}
	return h.hook(due)
}

// dueTransport keeps requests until a hook is due.
type dueTransport struct {
	next http.RoundTripper
	due  <-chan struct{}
}

func (t *dueTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-t.due:
		return t.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// beginRoles begins the hook that makes the roles of RBAC, and returns what adds it to the server: where the server would have it, it is begun early.
func (b *base) beginRoles(ctx context.Context) (add func(*genericapiserver.GenericAPIServer) error, err error) {
	disabled := b.generic.DisabledPostStartHooks
	if disabled.Has(rbacrest.PostStartHookName) || !b.generic.MergedResourceConfig.AnyResourceForGroupEnabled(rbac.GroupName) {
		return func(*genericapiserver.GenericAPIServer) error { return nil }, nil
	}
	name, hook, err := rbacrest.RESTStorageProvider{}.PostStartHook()
	if err != nil {
		return nil, err
	}
	early := beginHook(ctx, hook, b.generic.LoopbackClientConfig)
	disabled.Insert(name) // the server would add its own
	return func(server *genericapiserver.GenericAPIServer) error {
		disabled.Delete(name)
		return server.AddPostStartHook(name, early.run)
	}, nil
}
