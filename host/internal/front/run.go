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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.mu.Lock()
	f.fail = cancel
	f.mu.Unlock()

	hooksDone := make(chan struct{})
	err := f.server.AddPreShutdownHook("catena", func() error {
		defer close(hooksDone)
		return f.runPreShutdownHooks()
	})
	if err != nil {
		return err
	}
	go f.signalDraining(hooksDone)
	if err := f.server.PrepareRun().RunWithContext(ctx); err != nil {
		return fmt.Errorf("serve on %s: %w", f.Addr(), err)
	}
	var failure failedError
	if errors.As(context.Cause(ctx), &failure) {
		return failure.error
	}
	return nil
}

// Fail ends Run, which returns the error after its shutdown. The first error
// counts. Before Run it does nothing.
func (f *Front) Fail(err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.fail != nil {
		f.fail(failedError{err})
	}
}

// failedError tells an error given to Fail from the end of Run's own context.
type failedError struct{ error }
