package stagecheck

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// largeMessage is far above the limit that gRPC's libraries have by default, which is 4 MiB.
const largeMessage = 16 << 20

// checkMessageSize sends a field that the stage does not know, which it has to ignore.
func checkMessageSize(ctx context.Context, s *suite) error {
	st, err := s.launched(ctx)
	if err != nil {
		return err
	}
	defer st.close()
	req := &stagev1.DescribeRequest{}
	const unknownField = 10_000
	req.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, unknownField, protowire.BytesType),
		make([]byte, largeMessage)))
	if _, err := st.rpc.Describe(ctx, req); err != nil {
		return want(fmt.Sprintf("a response to Describe with an unknown field of %d MiB", largeMessage>>20), "%s", reason(err))
	}
	return nil
}

// checkOnce calls what is called once a second time.
func checkOnce(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	before := st.configured
	err = st.configure(ctx, s.opts.Config, false)
	st.configured = before
	if status.Code(err) != codes.FailedPrecondition {
		return want("FAILED_PRECONDITION from a second Configure", "%s", status.Code(err))
	}
	_, err = st.rpc.PrepareRun(ctx, &stagev1.PrepareRunRequest{})
	if code := status.Code(err); code != codes.FailedPrecondition && code != codes.Unimplemented {
		return want("FAILED_PRECONDITION from a second PrepareRun", "%s", code)
	}
	return st.again(ctx, "after a second Configure")
}

// heldCalls are begun and not finished, beside Watch. docs/protocol.md asks for 16 calls at a time.
const heldCalls = 14

// checkCalls begins calls, and makes another. A server with few threads gives each of the first one of them, although their
// messages have not come.
func checkCalls(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	conn, err := st.process.Conn()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait.probe())
	defer cancel() // ends the calls
	for i := range heldCalls {
		if _, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Describe"}, stagev1.Stage_Describe_FullMethodName); err != nil {
			return want(fmt.Sprintf("%d calls at a time, beside Watch", heldCalls), "no more than %d: %v", i, err)
		}
	}
	if _, err := st.rpc.Describe(ctx, &stagev1.DescribeRequest{}); err != nil {
		return want(fmt.Sprintf("a response to Describe within %s, while %d other calls are under way and Watch lasts",
			s.wait.probe(), heldCalls), "%s", reason(err))
	}
	return nil
}

// events is what came of Watch.
type events struct {
	first *stagev1.Event
	err   error // of the first event
}

// watch opens the stream of events, as the host does, and keeps it open.
func (st *stage) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, st.wait.probe())
	defer cancel()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	st.closers = append(st.closers, end)
	late := context.AfterFunc(ctx, end)
	stream, err := st.rpc.Watch(life, &stagev1.WatchRequest{})
	if err == nil {
		st.events.first, err = stream.Recv()
	}
	if st.events.err = err; !late() && err != nil {
		st.events.err = fmt.Errorf("none within %s", st.wait.probe())
	}
	if err != nil {
		return
	}
	go func() {
		for err == nil {
			_, err = stream.Recv()
		}
	}()
}
