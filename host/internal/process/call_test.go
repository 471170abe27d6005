package process

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
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

// What a stage responds with an error, or describes itself as, cannot forge lines of the log or of
// what commands print.
func TestHostileResponses(t *testing.T) {
	t.Parallel()
	a := &Attached{spec: Spec{Stage: "test"}, done: make(chan struct{})}
	for message, want := range map[string]string{
		"no\n2026-01-01T00:00:00.000Z [ERROR] front: all is lost\n": `no
    2026-01-01T00:00:00.000Z [ERROR] front: all is lost`,
		"no\r[ERROR] front\x1b[2J":   `no\r[ERROR] front\x1b[2J`,
		"name: wrong\r\nwait: wrong": "name: wrong\n    wait: wrong",
		"größer als erlaubt":         "größer als erlaubt",
	} {
		err := a.interceptor().callError(t.Context(), "/Stage/Configure", status.Error(codes.InvalidArgument, message))
		if got, want := err.Error(), `stage "test": Configure: `+want+` (InvalidArgument)`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: code is %v", message, status.Code(err))
		}
	}
	d := printableDescription(&stagev1.DescribeResponse{Version: "v1\nready after 1s", Sdk: "\x1b[2J", Summary: "a\tb"})
	if d.GetVersion() != `v1\nready after 1s` || d.GetSdk() != `\x1b[2J` || d.GetSummary() != "a    b" {
		t.Errorf("description is %v", d)
	}
	v := &stagev1.ValidateConfigResponse{Problems: []*stagev1.ConfigProblem{{Key: "a\x1b[2Jb", Message: "wrong\nready after 1s"}}}
	makePrintable(v)
	if p := v.GetProblems()[0]; p.GetKey() != `a\x1b[2Jb` || p.GetMessage() != "wrong\n    ready after 1s" {
		t.Errorf("problem is %v", p)
	}
	h := &stagev1.CheckHealthResponse{Results: []*stagev1.HealthResult{{Name: "db", Error: "no\n[+]db ok"}}}
	makePrintable(h)
	if r := h.GetResults()[0]; r.GetError() != "no\n    [+]db ok" {
		t.Errorf("result is %v", r)
	}
}
