package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// registerTimeout adds --timeout to a command that changes something and may take long. The host bounds each step by itself.
func registerTimeout(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 0, "`time` within which it is to be done; 0 for as long as the host takes")
}

// within calls do with a context that ends after the time of --timeout. The error then says what has not happened.
func within(ctx context.Context, timeout time.Duration, not string, do func(context.Context) error) error {
	if timeout < 0 {
		return fmt.Errorf("--timeout %s: must not be negative", timeout)
	}
	if timeout > 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s within %s (--timeout)", not, timeout))
		defer cancel()
		ctx = bounded
	}
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}
