package process

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// beforeItsTimer is a context whose deadline has passed and whose timer comes a moment later.
type beforeItsTimer struct{ context.Context }

func (beforeItsTimer) Deadline() (time.Time, bool) { return time.Now().Add(-time.Microsecond), true }

func (beforeItsTimer) Err() error { return nil }

// A stage can end a call at its deadline before the host's own timer does.
func TestCallThatTheStageEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	a := &Attached{spec: Spec{Stage: "test"}, done: make(chan struct{})}
	err := a.interceptor().callError(beforeItsTimer{ctx}, "/Stage/Configure", status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM"))
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != `stage "test": Configure: no response in time (DeadlineExceeded)` {
		t.Error(err)
	}
}

// A deadline that passes is reported with its time and the key that sets it.
func TestTimeoutNamesItsKey(t *testing.T) {
	t.Parallel()
	ctx, cancel := WithTimeout(t.Context(), time.Nanosecond, "stages.test.drainTimeout")
	defer cancel()
	a := &Attached{spec: Spec{Stage: "test"}, done: make(chan struct{})}
	err := a.interceptor().callError(ctx, "/Stage/Drain", status.FromContextError(context.DeadlineExceeded).Err())
	want := `stage "test": Drain: no response within 1ns; raise stages.test.drainTimeout if it needs longer (DeadlineExceeded)`
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
