package stagecheck

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Leftovers that a check of descriptors allows: a log file that is opened, a connection
// to the host.
const spareFiles = 8

// checkCancellation begins requests and goes away. What a stage keeps of them shows as
// descriptors that stay open.
func checkCancellation(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	if err != nil {
		return err
	}
	_, stream, streamErr := s.endpointPath(ctx, "stream")
	before, err := usageOf(st.process.PID())
	if err != nil {
		return skipf("the descriptors of a process cannot be counted on this system: %v", err)
	}
	var conns []*rawConn
	for i := range 2 * unfinished {
		var conn *rawConn
		if streamErr == nil && i%2 == 0 {
			conn, err = st.halfStream(ctx, stream)
		} else {
			conn, err = st.half(ctx, path)
		}
		if conn != nil {
			conns = append(conns, conn)
			defer conn.Close()
		}
		if err != nil {
			return err
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	if err := st.settles(ctx, before.files+spareFiles, fmt.Sprintf("after %d requests were cancelled", len(conns))); err != nil {
		return err
	}
	return st.again(ctx, "after other requests were cancelled")
}

// halfStream begins the stream of the endpoint on a connection of its own.
func (st *stage) halfStream(ctx context.Context, path string) (*rawConn, error) {
	conn, err := st.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.head(http.MethodGet, path); err != nil {
		return conn, err
	}
	_, err = conn.r.Peek(1)
	return conn, err
}

// settles waits until the process has no more descriptors than most.
func (st *stage) settles(ctx context.Context, most int, when string) error {
	ctx, cancel := context.WithTimeout(ctx, st.wait.settle())
	defer cancel()
	for {
		now, err := usageOf(st.process.PID())
		if err != nil || now.files <= most {
			return nil // another check reports a process that has ended
		}
		select {
		case <-ctx.Done():
			return want(fmt.Sprintf("at most %d open descriptors %s", most, when), "%d, %s later", now.files, st.wait.settle())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
