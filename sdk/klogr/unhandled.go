package klogr

import (
	"context"
	"errors"
	"net/http"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// The handlers are read in all goroutines, as the logger is.
func init() { utilruntime.ErrorHandlers[0] = logUnhandled }

// logUnhandled stands in for the handler of utilruntime.HandleError that logs, and is
// called at the same depth. That work was canceled because its context has ended, as the
// watches of a process that stops, is no error, and neither is a client that leaves before
// the response.
func logUnhandled(ctx context.Context, err error, message string, keysAndValues ...any) {
	logger := klog.LoggerWithName(klog.FromContext(ctx).WithCallDepth(3), "UnhandledError")
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		logger.V(4).Info(message, append(keysAndValues, "error", err)...)
	case err == nil && isAbandoned(ctx, message, keysAndValues):
		logger.V(4).Info(message, keysAndValues...)
	default:
		logger.Error(err, message, keysAndValues...)
	}
}

// isAbandoned reports whether a line of the filters is about a request whose client has
// left: its context has been canceled, and has not passed its deadline.
func isAbandoned(ctx context.Context, message string, keysAndValues []any) bool {
	if !errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	switch message {
	case "Timeout or abort while handling":
		return true
	case "Post-timeout activity": // of a handler that has not panicked
		last := len(keysAndValues) - 1
		return last > 0 && keysAndValues[last-1] == "result" && (keysAndValues[last] == nil || keysAndValues[last] == http.ErrAbortHandler)
	}
	return false
}
