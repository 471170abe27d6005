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

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/decode"
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
	if err := invoke(ctx, method, req, reply, cc, bounded(opts, method)...); err != nil {
		return i.callError(ctx, method, err)
	}
	makePrintable(reply)
	return nil
}

func (i interceptor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, bounded(opts, method)...)
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
	st, cause := shownStatus(status.Convert(err)), ended(ctx)
	if st.Code() == codes.DeadlineExceeded && cause != nil {
		st = status.New(codes.DeadlineExceeded, timeoutMessage(ctx))
	} else if (st.Code() == codes.Unavailable || st.Code() == codes.Canceled) && cause == nil {
		if reason := i.exited(ctx); reason != "" {
			st = status.New(codes.Unavailable, "its process "+reason)
		}
	}
	return &CallError{Stage: i.stage, Method: path.Base(method), Status: st, cause: cause}
}

// bounded adds to options the length of the longest message that the call takes.
func bounded(opts []grpc.CallOption, method string) []grpc.CallOption {
	return append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(decode.MaxMessage(method)))
}

// makePrintable makes the messages of a reply that are printed or logged fit for it, as
// shownStatus does for those of errors.
func makePrintable(reply any) {
	switch r := reply.(type) {
	case *stagev1.ValidateConfigResponse:
		for _, p := range r.GetProblems() {
			p.Key, p.Message = printable.Line(p.GetKey()), shownLines(p.GetMessage(), bounds.Reason)
		}
	case *stagev1.CheckHealthResponse:
		for _, result := range r.GetResults() {
			result.Error = shownLines(result.GetError(), bounds.Reason)
		}
	}
}

// shownStatus returns a status whose message cannot forge lines where it is logged or printed, nor fill them:
// what cannot be printed is escaped, all lines but the first are indented, and the end is cut off.
func shownStatus(st *status.Status) *status.Status {
	return status.New(st.Code(), shownLines(st.Message(), bounds.Error))
}

// shownLines is printable.Lines for the beginning of a text, which has at most that many bytes once it can be printed.
func shownLines(s string, most int) string {
	const more = " …"
	shown := printable.Lines(s[:min(len(s), most)])
	if len(s) > most || len(shown) > most {
		shown = strings.ToValidUTF8(shown[:min(len(shown), most-len(more))], "") + more
	}
	return shown
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

// errNoBroker fails the calls of go-plugin's broker.
var errNoBroker = status.Error(codes.Unimplemented, "the host has no broker")

// awaitConnected returns when gRPC reports that connections in use are ready: it does a moment after it has let the
// first call through.
func awaitConnected(ctx context.Context, conns []*grpc.ClientConn) {
	for _, cc := range conns {
		cc.WaitForStateChange(ctx, connectivity.Connecting)
	}
}

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
	if path.Dir(method) == "/plugin.GRPCBroker" { // it is unused, and go-plugin keeps each message on it for seconds
		return nil, errNoBroker
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
