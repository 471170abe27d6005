package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Hook is code of a stage that the host runs at one point of the stage's life.
type Hook struct {
	Stage, Name string
	Run         func(context.Context) error
}

// RunPostStart runs the hooks all at once, in no order, and returns when each
// has returned. A hook that runs for the server's life is legal; its context
// ends with ctx. Finished is called with each hook as it returns, concurrently;
// an error that comes after ctx has ended is that of a hook that was cut short
// and is passed as nil.
func RunPostStart(ctx context.Context, hooks []Hook, finished func(Hook, error)) {
	var wg sync.WaitGroup
	for _, h := range hooks {
		wg.Go(func() {
			err := run(ctx, h)
			if ctx.Err() != nil {
				err = nil
			}
			if err != nil {
				err = fmt.Errorf("post-start hook %q of stage %q failed: %w", h.Name, h.Stage, err)
			}
			finished(h, err)
		})
	}
	wg.Wait()
}

// RunPreShutdown runs the hooks all at once and returns when each has returned, which
// it does when ctx ends. None blocks another; what failed comes back joined.
func RunPreShutdown(ctx context.Context, hooks []Hook) error {
	errs := make([]error, len(hooks))
	var wg sync.WaitGroup
	for i, h := range hooks {
		wg.Go(func() {
			if err := run(ctx, h); err != nil {
				errs[i] = fmt.Errorf("pre-shutdown hook %q of stage %q failed: %w", h.Name, h.Stage, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// run runs a hook, and makes a panic an error of it.
func run(ctx context.Context, h Hook) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return h.Run(ctx)
}
