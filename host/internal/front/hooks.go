package front

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
)

// Check is a health check.
type Check struct {
	// Name is the name under which the endpoints list it, such as STAGE/CHECK.
	Name string
	// Healthz, Livez and Readyz are the endpoints that it is part of.
	Healthz, Livez, Readyz bool
	// Boot says that the check fails while the server starts: /livez has
	// livez-grace-period for it.
	Boot bool
	// Run returns nil if all is well. It is to be bounded in time: an endpoint
	// answers when all its checks have returned.
	Run func(context.Context) error
}

// AddCheck adds a health check. It is to be called before Run.
func (f *Front) AddCheck(c Check) error {
	check := healthz.NamedCheck(c.Name, func(r *http.Request) error { return c.Run(r.Context()) })
	if c.Boot {
		return f.server.AddBootSequenceHealthChecks(check)
	}
	if c.Healthz && c.Livez && c.Readyz {
		return f.server.AddHealthChecks(check)
	}
	if c.Healthz {
		// Upstream adds to /healthz only what is in all three.
		return f.server.AddHealthChecks(healthz.NamedCheck(c.Name, func(r *http.Request) error {
			if !c.Livez && isUnder(r.URL.Path, "/livez") || !c.Readyz && isUnder(r.URL.Path, "/readyz") {
				return nil
			}
			return c.Run(r.Context())
		}))
	}
	if c.Livez {
		if err := f.server.AddLivezChecks(0, check); err != nil {
			return err
		}
	}
	if c.Readyz {
		return f.server.AddReadyzChecks(check)
	}
	return nil
}

func isUnder(path, endpoint string) bool {
	rest, ok := strings.CutPrefix(path, endpoint)
	return ok && (rest == "" || rest[0] == '/')
}

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

// Draining returns a channel that is closed when the server stops to accept
// requests: after the shutdown delay and the pre-shutdown hooks. From then on
// stages have to end their watches, for which Run waits.
func (f *Front) Draining() <-chan struct{} { return f.draining }

// signalDraining closes the channel when upstream's signal NotAcceptingNewRequest
// comes, which it does not show to others.
func (f *Front) signalDraining(hooksDone <-chan struct{}) {
	<-f.initiated
	time.Sleep(f.server.ShutdownDelayDuration)
	<-hooksDone
	close(f.draining)
}
