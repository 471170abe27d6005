package stagecheck

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/catena-dev/catena/sdk/stagev1"
)

func checkOptional(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	_, err = st.rpc.Notify(ctx, &stagev1.NotifyRequest{Signal: "StagecheckSignal", At: timestamppb.Now()})
	if err != nil && !unimplemented(err) {
		return want("no error, or UNIMPLEMENTED, from Notify with an unknown signal", "%s", reason(err))
	}
	for what, call := range map[string]func(context.Context, *stagev1.RunHookRequest) error{
		"RunPostStartHook": func(ctx context.Context, r *stagev1.RunHookRequest) error {
			_, err := st.rpc.RunPostStartHook(ctx, r)
			return err
		},
		"RunPreShutdownHook": func(ctx context.Context, r *stagev1.RunHookRequest) error {
			_, err := st.rpc.RunPreShutdownHook(ctx, r)
			return err
		},
	} {
		err := call(ctx, &stagev1.RunHookRequest{Name: "stagecheck-no-such-hook"})
		if code := status.Code(err); code != codes.NotFound && code != codes.Unimplemented {
			return want("NOT_FOUND or UNIMPLEMENTED from "+what+" with an unknown name", "%s", code)
		}
	}
	return nil
}

// standbyTime is how long a standby is watched to accept nothing.
const standbyTime = time.Second

func checkStandby(ctx context.Context, s *suite) error {
	st, err := s.launched(ctx)
	if err != nil {
		return err
	}
	defer st.close()
	if !st.process.Description().GetStandby() {
		return skip("the stage does not report that it can stand by")
	}
	if err := errors.Join(st.configure(ctx, s.opts.Config, true), st.prepare(ctx)); err != nil {
		return want("Configure with standby, and PrepareRun, without an error", "%s", reason(err))
	}
	paths := s.probePaths(st)
	if len(paths) == 0 {
		return skip("the stage claims no path")
	}
	conn, err := st.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.head(http.MethodGet, paths[0]); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(standbyTime))
	_, err = conn.r.Peek(1)
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		return want("no response before Activate", "%s", firstBytes(conn, err))
	}
	if _, err := st.rpc.Activate(ctx, &stagev1.ActivateRequest{}); err != nil {
		return want("Activate without an error", "%s", reason(err))
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(deadline)
	if _, err := conn.readResponse(http.MethodGet); err != nil {
		return want("a response after Activate to a request that has waited", "%v", err)
	}
	return nil
}

// firstBytes shows the beginning of what has come.
func firstBytes(conn *rawConn, err error) string {
	if err != nil {
		return err.Error()
	}
	p, _ := conn.r.Peek(conn.r.Buffered())
	line, _, _ := strings.Cut(string(p), "\r\n")
	return line
}
