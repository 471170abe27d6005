package stagecheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

const (
	// drainStreams are open when the stage drains.
	drainStreams = 16
	// leastSpread is the part of the spread over which their ends have to be. That sixteen random moments are closer
	// together happens once in a hundred million times.
	leastSpread = 0.2
)

// checkDrain has streams open, and makes a request on a connection of its own in the end.
func checkDrain(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	if _, _, err := s.path(ctx); err != nil && !errors.As(err, new(skip)) {
		return err
	}
	streams, err := s.openStreams(ctx, st)
	if err != nil {
		return err
	}
	drainCtx, cancel := context.WithTimeout(ctx, s.wait.third())
	defer cancel()
	spread := s.wait.third() / 4
	resp, err := st.rpc.Drain(drainCtx, &stagev1.DrainRequest{Spread: durationpb.New(spread)})
	switch {
	case unimplemented(err):
		return skip("the stage does not implement Drain")
	case err != nil:
		return want(fmt.Sprintf("a response to Drain within %s", s.wait.third()), "%s", reason(err))
	case resp.GetRunning() != 0:
		return want("no request running after Drain", "%d", resp.GetRunning())
	}
	for _, ofPath := range streams {
		if err := checkEnds(ofPath, spread); err != nil {
			return err
		}
	}
	if st.path == "" {
		return nil
	}
	conn, err := st.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.exchange(http.MethodGet, st.path); err != nil {
		return want(fmt.Sprintf("a response to GET %s on a new connection after Drain: it closes nothing", st.path), "%v", err)
	}
	return st.again(ctx, "after Drain")
}

// streamEnd is how and when a stream has ended, and what its head and its trailer have said of a watch.
type streamEnd struct {
	at            time.Time
	err           error
	head, trailer string
}

// check compares the end with what the head has promised.
func (e streamEnd) check() error {
	expected := ""
	if e.head == header.WatchResumable {
		expected = header.WatchDraining
	}
	switch {
	case e.err != nil:
		return want("a stream that ends properly when the stage drains", "%v", e.err)
	case e.trailer != expected:
		return want(fmt.Sprintf("the trailer %s: %q, after %q in the head", header.Watch, expected, e.head), "%q", e.trailer)
	}
	return nil
}

// openStreams begins streams on the endpoint, if the stage has it, and on what it passes on. Their ends come on the
// channels of each path.
func (s *suite) openStreams(ctx context.Context, st *stage) ([][]<-chan streamEnd, error) {
	var all [][]<-chan streamEnd
	if _, path, err := s.endpointPath(ctx, "stream"); err == nil {
		streams, err := openSome(ctx, st, path)
		if err != nil {
			return nil, err
		}
		watch, err := st.openWatch(ctx, path)
		if err != nil {
			return nil, err
		}
		all = append(all, append(streams, watch))
	}
	if _, path, err := s.through(ctx, "stream"); err == nil {
		streams, err := openSome(ctx, st, path)
		if err != nil {
			return nil, err
		}
		all = append(all, streams)
	}
	return all, nil
}

// openSome begins streams on one path.
func openSome(ctx context.Context, st *stage, path string) ([]<-chan streamEnd, error) {
	var streams []<-chan streamEnd
	for range drainStreams {
		resp, r, err := st.open(ctx, path)
		if err != nil {
			return nil, err
		}
		st.closers = append(st.closers, func() { _ = resp.Body.Close() })
		ended := make(chan streamEnd, 1)
		go func() {
			_, err := io.Copy(io.Discard, r)
			ended <- streamEnd{at: time.Now(), err: err}
		}()
		streams = append(streams, ended)
	}
	return streams, nil
}

// openWatch begins a stream as the host does that can go on with it in another process.
func (st *stage) openWatch(ctx context.Context, path string) (<-chan streamEnd, error) {
	conn, err := st.dial(ctx)
	if err != nil {
		return nil, err
	}
	st.closers = append(st.closers, func() { _ = conn.Close() })
	if err := conn.head(http.MethodGet, path, header.Watch+": true"); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(conn.r, nil)
	if err != nil {
		return nil, err
	}
	ended := make(chan streamEnd, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		ended <- streamEnd{time.Now(), err, resp.Header.Get(header.Watch), resp.Trailer.Get(header.Watch)}
	}()
	return ended, nil
}

// checkEnds looks at the streams after Drain, which has returned when there were none any more.
func checkEnds(streams []<-chan streamEnd, spread time.Duration) error {
	var ends []time.Time
	for _, ended := range streams {
		end := <-ended
		if err := end.check(); err != nil {
			return err
		}
		ends = append(ends, end.at)
	}
	if len(ends) == 0 {
		return nil
	}
	slices.SortFunc(ends, time.Time.Compare)
	if took := ends[len(ends)-1].Sub(ends[0]); took < time.Duration(leastSpread*float64(spread)) {
		return want(fmt.Sprintf("%d streams that end each at its own moment, over the spread of %s", len(ends),
			spread), "all of them within %s", took.Round(time.Millisecond))
	}
	return nil
}
