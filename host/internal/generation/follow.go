package generation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/panics"
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
	// Report reports whether Report or Complete return something else.
	Report bool
	// Sizes are those of stored resources in groups that the stage claims.
	Sizes []*stagev1.ResourceSize
	// Limits are those that the stage has come to, for the first time in a while: LimitClaims or LimitSizes.
	Limits []string
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
// ends. Changed is called when an event, or several that came fast, have been taken in. A stream of events that breaks
// is made again: its first event carries the present state.
func (g *Generation) Follow(ctx context.Context, changed func(Change)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ending, cancel)()
	if g.neverChanges {
		return
	}
	in := intake{take: func(e *stagev1.Event) { changed(g.event(e)) }}
	for pause := followAgain; ; pause = min(2*pause, maxFollowAgain) {
		events, err := g.follow(ctx, &in)
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
		case <-time.After(max(pause, time.Until(in.next))):
		}
		if !errors.Is(err, io.EOF) && g.limits.Due("stream") {
			g.opts.Log.Warn("the stage's stream of events has broken, it is made again", "generation", g.id, "error", err)
		}
	}
}

// follow takes in the events of one stream, and returns how many came and why it ended.
func (g *Generation) follow(ctx context.Context, in *intake) (events int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream stagev1.Stage_WatchClient
	var first *stagev1.Event
	if opened := g.events; opened != nil { // by PrepareRun
		g.events, stream, first = nil, opened, opened.first
		defer context.AfterFunc(ctx, opened.end)()
	} else if stream, err = g.process.Client().Watch(ctx, &stagev1.WatchRequest{}); err != nil {
		return 0, err
	}
	received := make(chan *stagev1.Event)
	go func() {
		defer close(received)
		err = panics.Call(func() (err error) {
			for e := first; err == nil; e, err = stream.Recv() {
				if e == nil { // there is no first one
					continue
				}
				select {
				case received <- e:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return err
		})
	}()
	events = in.all(ctx, received)
	cancel()
	for range received { // err is set when it is closed
	}
	return events, err
}

// event takes in one event, or what several make together.
func (g *Generation) event(e *stagev1.Event) Change {
	var c Change
	if claims := e.GetClaimsChanged(); claims != nil {
		if err := checkNumber(claims.GetClaims()); err == nil {
			g.setReport(claims.GetListedPaths(), claims.GetClaims())
			c.Report = true
		} else if g.limits.Due(LimitClaims) {
			g.opts.Log.Warn("the stage changes its claims to more than it can have: those before stay", "generation",
				g.id, "limit", LimitClaims, "error", err)
			c.Limits = append(c.Limits, LimitClaims)
		}
	}
	if names := e.GetSignaled(); len(names) > 0 {
		g.signaled(names)
		c.Report = true
	}
	var full bool
	if c.Sizes, full = g.validSizes(e.GetResourceSizes()); full { // by the claims of this event
		c.Limits = append(c.Limits, LimitSizes)
	}
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
	ctx, cancel := context.WithCancel(ctx) // ends the stream if the rest is unwanted
	defer cancel()
	stream, err := g.process.Client().GetDebugPage(ctx, req)
	if err != nil {
		return err
	}
	for left := bounds.Page; ; {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if left -= len(response.GetBody()); left < 0 {
			return fmt.Errorf("stage %q: the page has more than %d bytes", g.Name(), bounds.Page)
		}
		if err := piece(response); err != nil {
			return err
		}
	}
}
