package process

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// exitNotice is how long an interrupted call waits for Done: the connection of a process
// that ends is closed a moment before.
const exitNotice = 100*time.Millisecond + drainTime

// unary gives errors the stage's name, and a reason if the process has ended.
func (p *Process) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return p.callError(ctx, method, invoke(ctx, method, req, reply, cc, opts...))
}

// stream does for streams what unary does. It sees go-plugin's own streams too, and
// through them the connection, the first time before anyone else uses it.
func (p *Process) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p.mu.Lock()
	if !slices.Contains(p.conns, cc) {
		p.conns = append(p.conns, cc)
	}
	p.mu.Unlock()
	s, err := open(ctx, desc, cc, method, opts...)
	if !strings.HasPrefix(method, "/"+stagev1.Stage_ServiceDesc.ServiceName+"/") {
		return s, err
	}
	if err != nil {
		return nil, p.callError(ctx, method, err)
	}
	return &clientStream{ClientStream: s, fail: p.callError, method: method}, nil
}

type clientStream struct {
	grpc.ClientStream
	fail   func(ctx context.Context, method string, err error) error
	method string
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		return err
	}
	return s.fail(s.Context(), s.method, err)
}

func (p *Process) callError(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	call := &CallError{Stage: p.spec.Stage, Method: path.Base(method), Status: st, cause: ended(ctx)}
	interrupted := st.Code() == codes.Unavailable || st.Code() == codes.Canceled
	switch {
	case st.Code() == codes.DeadlineExceeded && call.cause != nil:
		call.Status = status.New(codes.DeadlineExceeded, "no answer in time")
	case interrupted && call.cause == nil && p.awaitExit(ctx, exitNotice):
		call.Status = status.New(codes.Unavailable, "its process "+p.exit().Reason())
	}
	return call
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

// unary is Process.unary for an attached process.
func (a *Attached) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return a.callError(ctx, method, invoke(ctx, method, req, reply, cc, opts...))
}

// stream is Process.stream for an attached process.
func (a *Attached) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, a.callError(ctx, method, err)
	}
	return &clientStream{ClientStream: s, fail: a.callError, method: method}, nil
}

func (a *Attached) callError(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	st, cause := status.Convert(err), ended(ctx)
	switch {
	case st.Code() == codes.DeadlineExceeded && cause != nil:
		st = status.New(codes.DeadlineExceeded, "no answer in time")
	case cause == nil && a.Err() != nil:
		st = status.New(codes.Unavailable, "its process has ended or let go")
	}
	return &CallError{Stage: a.spec.Stage, Method: path.Base(method), Status: st, cause: cause}
}

// ended is the context's error, also in the moment between its deadline and its timer:
// the stage, which knows the deadline too, can end a call then.
func ended(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if err := ctx.Err(); err != nil || !ok || deadline.After(time.Now()) {
		return err
	}
	return context.DeadlineExceeded
}
