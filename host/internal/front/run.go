package front

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run serves until ctx ends or Fail is called, and then shuts down as kube-apiserver does: not ready any more, a delay,
// pre-shutdown hooks, no new requests, those in flight are drained, the audit log is written out. It returns the error
// that Fail was called with and those of pre-shutdown hooks, if any. It can be called once. Signaled, if it is not nil,
// is called with the lifecycle signals as they come, one at a time; it must not block.
func (f *Frontend) Run(ctx context.Context, signaled func(name string, at time.Time)) error {
	f.signals.observe = signaled
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.failed, cancel)()

	hooksDone := make(chan struct{})
	// The one hook of Kubernetes' server does not fail: the server would end at once then,
	// without regard to requests in flight.
	var hooksErr error
	err := f.server.AddPreShutdownHook("catena", func() error {
		defer close(hooksDone)
		if !f.requests.lost.Load() {
			hooksErr = f.runPreShutdownHooks()
		}
		return nil
	})
	if err != nil {
		return err
	}
	own := f.ownChecks()
	f.health.own.Store(&own)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		f.followShutdown(hooksDone)
	}()
	go f.followStart(ctx)
	go f.awaitReady(ctx)
	ended := make(chan struct{})
	defer close(ended)
	most := idleGrace + max(f.server.ShutdownTimeout, f.server.ShutdownWatchTerminationGracePeriod)
	go f.requests.endConnections(f.draining, f.drained, ended, most)
	if err := f.server.PrepareRun().RunWithContext(ctx); err != nil {
		return errors.Join(context.Cause(f.failed), fmt.Errorf("serve on %s: %w", f.Addr(), err))
	}
	<-followed
	return errors.Join(context.Cause(f.failed), hooksErr)
}

// Fail ends Run, which returns the error after its shutdown; so does a Run that is
// yet to come. The first error counts. See Lost.
func (f *Frontend) Fail(err error) {
	if lost := (Lost{}); errors.As(err, &lost) {
		f.requests.lost.Store(true)
	}
	f.fail(err)
}

// Lost is an error for Fail: what all requests need is gone. From then on they get 503, and no pre-shutdown hook runs.
type Lost struct{ Err error }

func (l Lost) Error() string { return l.Err.Error() }
func (l Lost) Unwrap() error { return l.Err }

// Abort ends all connections and takes no new one, for a server that is not to wait for
// its requests. Run goes on, and is not worth waiting for.
func (f *Frontend) Abort() {
	f.listener.refuse()
	f.listener.closeAll()
}
