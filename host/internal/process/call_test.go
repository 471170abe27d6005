package process

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// beforeItsTimer is a context between its deadline and the moment in which it ends.
type beforeItsTimer struct{ context.Context }

func (beforeItsTimer) Deadline() (time.Time, bool) { return time.Now().Add(-time.Microsecond), true }

// A stage that ends a call at the deadline is faster than the host's own timer at times.
func TestCallThatTheStageEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	a := &Attached{spec: Spec{Stage: "test"}, done: make(chan struct{})}
	err := a.callError(beforeItsTimer{t.Context()}, "/Stage/Configure", status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM"))
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != `stage "test": Configure: no answer in time (DeadlineExceeded)` {
		t.Error(err)
	}
}
