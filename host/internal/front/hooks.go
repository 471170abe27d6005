package front

import (
	"context"
	"fmt"
	"sync"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// AddSignal makes the server answer 503, not 404, for what no stage serves, until
// the channel is closed. It is to be called before Run.
func (f *Front) AddSignal(name string, signal <-chan struct{}) error {
	return f.server.RegisterMuxAndDiscoveryCompleteSignal(name, signal)
}

// AddPostStartHook adds a function that Run calls when it has begun to serve. The
// server is not ready before it has returned. Its context ends with the server.
// An error ends the server, and is what Run returns. It is to be called before Run.
func (f *Front) AddPostStartHook(name string, hook func(context.Context) error) error {
	return f.server.AddPostStartHook(name, func(ctx genericapiserver.PostStartHookContext) error {
		if err := hook(ctx); err != nil && ctx.Err() == nil {
			f.Fail(fmt.Errorf("post-start hook %q: %w", name, err))
			// Upstream would end the process here and now, and leave the stages
			// behind. Not to return keeps the server from being ready.
			<-ctx.Done()
		}
		return nil
	})
}

// AddPreShutdownHook adds a function that Run calls while it still serves, after
// its context has ended. Requests are accepted until all hooks have returned; all
// of them run at once. An error is logged. It is to be called before Run.
func (f *Front) AddPreShutdownHook(name string, hook func() error) {
	f.hooks = append(f.hooks, preShutdownHook{name, hook})
}

type preShutdownHook struct {
	name string
	run  func() error
}

type preShutdownHooks []preShutdownHook

func (h preShutdownHooks) run(failed func(name string, err error)) {
	var wg sync.WaitGroup
	for _, hook := range h {
		wg.Go(func() {
			if err := hook.run(); err != nil {
				failed(hook.name, err)
			}
		})
	}
	wg.Wait()
}

// runPreShutdownHooks is the one hook that upstream runs: it would end the server
// without regard to requests if a hook failed.
func (f *Front) runPreShutdownHooks() error {
	f.hooks.run(func(name string, err error) {
		f.opts.Log.Error("pre-shutdown hook failed", "hook", name, "error", err)
	})
	return nil
}
