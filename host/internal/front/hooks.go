package front

import (
	"context"
	"errors"
	"fmt"
	"sync"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/catena-dev/catena/host/internal/panics"
)

// AddSignal makes the server respond with 503, not 404, to requests that no stage serves,
// until the channel is closed. It is to be called before Run.
func (f *Frontend) AddSignal(name string, signal <-chan struct{}) error {
	return f.server.RegisterMuxAndDiscoveryCompleteSignal(name, signal)
}

// AddPostStartHook adds a function that Run calls once it serves. The
// server is not ready before it has returned. Its context ends with the server.
// An error ends the server, and is what Run returns. It is to be called before Run.
func (f *Frontend) AddPostStartHook(name string, hook func(context.Context) error) error {
	return f.server.AddPostStartHook(name, func(ctx genericapiserver.PostStartHookContext) error {
		if err := hook(ctx); err != nil && ctx.Err() == nil {
			f.Fail(fmt.Errorf("post-start hook %q: %w", name, err))
			// Kubernetes' code would end the process at once, without its stages. As long
			// as the hook does not return, the server is not ready.
			<-ctx.Done()
		}
		return nil
	})
}

// AddPreShutdownHook adds a function that Run calls while it still serves, after
// its context has ended. Requests are accepted until all hooks have returned; all
// of them run at once. Run returns their errors as they are. It is to be called before
// Run.
func (f *Frontend) AddPreShutdownHook(hook func() error) { f.hooks = append(f.hooks, hook) }

// runPreShutdownHooks returns the errors of the hooks joined, in the order in which the hooks were
// added.
func (f *Frontend) runPreShutdownHooks() error {
	errs := make([]error, len(f.hooks))
	var all sync.WaitGroup
	for i, hook := range f.hooks {
		all.Go(func() { errs[i] = panics.Call(hook) })
	}
	all.Wait()
	return errors.Join(errs...)
}
