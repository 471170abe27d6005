package front

import (
	"context"
	"errors"
	"fmt"
)

// Run serves until ctx ends or Fail is called, and then shuts down as
// kube-apiserver does: not ready any more, a delay, pre-shutdown hooks, no new
// requests, those in flight are drained, the audit log is written out. It returns
// the error that Fail was called with, if any. It can be called once.
func (f *Front) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.failed, cancel)()

	hooksDone := make(chan struct{})
	err := f.server.AddPreShutdownHook("catena", func() error {
		defer close(hooksDone)
		return f.runPreShutdownHooks()
	})
	if err != nil {
		return err
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		f.followShutdown(hooksDone)
	}()
	go f.followStart(ctx)
	ended := make(chan struct{})
	defer close(ended)
	go f.closeIdleConnections(ended)
	if err := f.server.PrepareRun().RunWithContext(ctx); err != nil {
		return errors.Join(context.Cause(f.failed), fmt.Errorf("serve on %s: %w", f.Addr(), err))
	}
	<-followed
	return context.Cause(f.failed)
}

// Fail ends Run, which returns the error after its shutdown; so does a Run that is
// yet to come. The first error counts.
func (f *Front) Fail(err error) { f.fail(err) }

// Abort ends all connections and takes no new one, for a server that is not to wait for
// its requests. Run goes on, and is not worth waiting for.
func (f *Front) Abort() {
	f.listener.refuse()
	f.listener.closeAll()
}
