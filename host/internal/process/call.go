package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// exitNotice is how long an interrupted call waits for Done: the connection of a process
// that ends is closed a moment before.
const exitNotice = 100*time.Millisecond + drainTime

// WithTimeout is context.WithTimeout for calls of a stage. The error of a call that takes longer
// names the time and the key of the configuration that sets it.
func WithTimeout(ctx context.Context, d time.Duration, key string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, timeoutError{key: key, after: d})
}

type timeoutError struct {
	key   string
	after time.Duration
}

func (e timeoutError) Error() string {
	return fmt.Sprintf("no response within %s; raise %s if it needs longer", e.after, e.key)
}

func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// interceptor turns the errors of the calls of one stage into *CallError.
type interceptor struct {
	stage string
	// exited returns why the process has ended, or "" if it has not. It may wait a moment for that.
	exited func(ctx context.Context) string
}

func (i interceptor) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return i.callError(ctx, method, err)
	}
	makePrintable(reply)
	return nil
}

func (i interceptor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if !strings.HasPrefix(method, "/"+stagev1.Stage_ServiceDesc.ServiceName+"/") { // go-plugin's own
		return s, err
	}
	if err != nil {
		return nil, i.callError(ctx, method, err)
	}
	return &clientStream{ClientStream: s, interceptor: i, method: method}, nil
}

type clientStream struct {
	grpc.ClientStream
	interceptor interceptor
	method      string
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		return err
	}
	return s.interceptor.callError(s.Context(), s.method, err)
}

func (i interceptor) callError(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	st, cause := printableStatus(status.Convert(err)), ended(ctx)
	if st.Code() == codes.DeadlineExceeded && cause != nil {
		st = status.New(codes.DeadlineExceeded, timeoutMessage(ctx))
	} else if (st.Code() == codes.Unavailable || st.Code() == codes.Canceled) && cause == nil {
		if reason := i.exited(ctx); reason != "" {
			st = status.New(codes.Unavailable, "its process "+reason)
		}
	}
	return &CallError{Stage: i.stage, Method: path.Base(method), Status: st, cause: cause}
}

// makePrintable makes the messages of a reply that are printed or logged fit for it, as
// printableStatus does for those of errors.
func makePrintable(reply any) {
	switch r := reply.(type) {
	case *stagev1.ValidateConfigResponse:
		for _, p := range r.GetProblems() {
			p.Key, p.Message = printable.Line(p.GetKey()), printable.Lines(p.GetMessage())
		}
	case *stagev1.CheckHealthResponse:
		for _, result := range r.GetResults() {
			result.Error = printable.Lines(result.GetError())
		}
	}
}

// printableStatus returns a status whose message cannot forge lines where it is logged or printed:
// what cannot be printed is escaped, and all lines but the first are indented.
func printableStatus(st *status.Status) *status.Status {
	if safe := printable.Lines(st.Message()); safe != st.Message() {
		p := st.Proto()
		p.Message = safe
		return status.FromProto(p)
	}
	return st
}

// ended returns the context's error, also in the moment between its deadline and its timer:
// the stage has the same deadline and can end a call then.
func ended(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if err := ctx.Err(); err != nil || !ok || deadline.After(time.Now()) {
		return err
	}
	return context.DeadlineExceeded
}

// timeoutMessage returns the message of a call whose deadline has passed.
func timeoutMessage(ctx context.Context) string {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second): // the timer is late
	}
	if timeout, ok := errors.AsType[timeoutError](context.Cause(ctx)); ok {
		return timeout.Error()
	}
	return "no response in time"
}

func (p *Process) interceptor() interceptor {
	return interceptor{stage: p.spec.Stage, exited: func(ctx context.Context) string {
		if !p.awaitExit(ctx, exitNotice) {
			return ""
		}
		return p.exit().Reason()
	}}
}

// errDisconnected fails the calls after the end of the one connection to the process. gRPC would try
// to connect again, and log a warning that it cannot, whenever a process ends.
var errDisconnected = status.Error(codes.Unavailable, "the connection has ended")

func (p *Process) isDisconnected(cc *grpc.ClientConn) bool {
	return p.described.Load() && cc.GetState() != connectivity.Ready
}

func (p *Process) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if p.isDisconnected(cc) {
		return p.interceptor().callError(ctx, method, errDisconnected)
	}
	return p.interceptor().unary(ctx, method, req, reply, cc, invoke, opts...)
}

// stream also records the connection. go-plugin opens a stream of its own first, so that no
// connection is used before it is recorded.
func (p *Process) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p.mu.Lock()
	if !slices.Contains(p.conns, cc) {
		p.conns = append(p.conns, cc)
	}
	p.mu.Unlock()
	if p.isDisconnected(cc) {
		return nil, p.interceptor().callError(ctx, method, errDisconnected)
	}
	return p.interceptor().stream(ctx, desc, cc, method, open, opts...)
}

// awaitExit waits for Done, and reports whether the process has ended.
func (p *Process) awaitExit(ctx context.Context, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.exit() != nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (a *Attached) interceptor() interceptor {
	return interceptor{stage: a.spec.Stage, exited: func(context.Context) string {
		if a.Err() == nil {
			return ""
		}
		return "has ended or closed the connection"
	}}
}
