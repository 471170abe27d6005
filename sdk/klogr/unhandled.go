package klogr

import (
	"context"
	"errors"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// The handlers are read in all goroutines, as the logger is.
func init() { utilruntime.ErrorHandlers[0] = logUnhandled }

// logUnhandled stands in for the handler of utilruntime.HandleError that logs, and is
// called at the same depth. That work was canceled because its context has ended, as the
// watches of a process that stops, is no error.
func logUnhandled(ctx context.Context, err error, message string, keysAndValues ...any) {
	logger := klog.LoggerWithName(klog.FromContext(ctx).WithCallDepth(3), "UnhandledError")
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		logger.V(4).Info(message, append(keysAndValues, "error", err)...)
		return
	}
	logger.Error(err, message, keysAndValues...)
}
