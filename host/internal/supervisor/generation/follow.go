package generation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// followAgain is how long after the end of an event stream the stage is followed anew,
	// twice as long after each attempt that brings nothing, up to maxFollowAgain.
	followAgain    = 100 * time.Millisecond
	maxFollowAgain = 5 * time.Second
)

// Change is what has changed with an event of the stage.
type Change struct {
	// Report says that Report or Complete return something else.
	Report bool
	// Sizes are those of stored resources in groups that the stage claims.
	Sizes []*stagev1.ResourceSize
	// TooManySizes says that the stage reports more than count, for the first time.
	TooManySizes bool
}

// eventStream is a stream of events whose first has come.
type eventStream struct {
	stagev1.Stage_WatchClient
	first *stagev1.Event
	end   context.CancelFunc
}

// watch opens the stream of events, and returns when its first has come: what has changed since the stage was prepared
// would be lost without it. A stage whose reports never change has no stream.
func (g *Generation) watch(ctx context.Context) error {
	own, end := context.WithCancel(g.ending)
	stop := context.AfterFunc(ctx, end)
	w := &eventStream{end: end}
	var err error
	if w.Stage_WatchClient, err = g.process.Client().Watch(own, &stagev1.WatchRequest{}); err == nil {
		w.first, err = w.Recv()
	}
	inTime := stop()
	switch {
	case err == nil && inTime:
		g.events = w
		return nil
	case status.Code(err) == codes.Unimplemented:
		g.neverChanges, err = true, nil
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("stage %q: Watch has ended without a first event, which has to carry the claims", g.Name())
	case !inTime:
		err = fmt.Errorf("stage %q: Watch has sent no first event, which has to carry the claims: %w", g.Name(), context.Cause(ctx))
	}
	end()
	return err
}

// Follow takes in what the stage reports until its process ends or is asked to, or ctx
// ends. Changed is called after each event. A stream of events that breaks is made again:
// its first event carries the present state.
func (g *Generation) Follow(ctx context.Context, changed func(Change)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ending, cancel)()
	if g.neverChanges {
		return
	}
	for pause := followAgain; ; pause = min(2*pause, maxFollowAgain) {
		events, err := g.follow(ctx, changed)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		if events > 0 {
			pause = followAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-g.Done():
			return
		case <-time.After(pause):
		}
		if !errors.Is(err, io.EOF) {
			g.opts.Log.Warn("the stage's stream of events has broken, it is made again", "generation", g.id, "error", err)
		}
	}
}

// follow takes in the events of one stream, and returns how many came and why it ended.
func (g *Generation) follow(ctx context.Context, changed func(Change)) (events int, err error) {
	var stream stagev1.Stage_WatchClient
	if opened := g.events; opened != nil { // by PrepareRun
		g.events, stream = nil, opened
		defer context.AfterFunc(ctx, opened.end)()
		events++
		changed(g.event(opened.first))
	} else {
		stream, err = g.process.Client().Watch(ctx, &stagev1.WatchRequest{})
	}
	for err == nil {
		var e *stagev1.Event
		if e, err = stream.Recv(); err == nil {
			events++
			changed(g.event(e))
		}
	}
	return events, err
}

// event takes in one event.
func (g *Generation) event(e *stagev1.Event) Change {
	var c Change
	if claims := e.GetClaimsChanged(); claims != nil {
		g.setReport(claims.GetListedPaths(), claims.GetClaims())
		c.Report = true
	}
	if names := e.GetSignaled(); len(names) > 0 {
		g.signaled(names)
		c.Report = true
	}
	c.Sizes, c.TooManySizes = g.validSizes(e.GetResourceSizes()) // by the claims of this event
	return c
}

// Notify tells the stage of a lifecycle signal of the server. A stage that does not want to
// know has been told of all: it returns false.
func (g *Generation) Notify(ctx context.Context, signal *stagev1.NotifyRequest) (more bool, err error) {
	_, err = g.process.Client().Notify(ctx, signal)
	if status.Code(err) == codes.Unimplemented {
		return false, nil
	}
	return true, err
}

// GatherMetrics writes the stage's metrics in Prometheus' text format 0.0.4. A stage that
// does not know of metrics has none.
func (g *Generation) GatherMetrics(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if w takes no more
	defer cancel()
	stream, err := g.process.Client().GatherMetrics(ctx, &stagev1.GatherMetricsRequest{})
	if err != nil {
		return err
	}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Unimplemented {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(piece.GetText()); err != nil {
			return err
		}
	}
}

// SetLogLevel changes the level of what the process logs. A stage that cannot do that keeps its level.
func (g *Generation) SetLogLevel(ctx context.Context, level string) error {
	_, err := g.process.Client().SetLogLevel(ctx, &stagev1.SetLogLevelRequest{Level: level})
	return err
}

// DebugPage calls piece with each piece of a page about the process.
func (g *Generation) DebugPage(ctx context.Context, req *stagev1.GetDebugPageRequest, piece func(*stagev1.GetDebugPageResponse) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if nobody wants the rest
	defer cancel()
	stream, err := g.process.Client().GetDebugPage(ctx, req)
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := piece(response); err != nil {
			return err
		}
	}
}
