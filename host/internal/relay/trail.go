package relay

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Trail is the way of one request through the stages, see WithTrail. It can be used by
// any number of goroutines.
type Trail struct {
	// Ended is called when a stage is done with the request; it may be nil.
	Ended func(TrailHop)

	mu   sync.Mutex
	hops []*trailHop
}

// TrailHop is a stage on the way.
type TrailHop struct {
	Stage string
	// Outcome is empty as long as the stage is at work.
	Outcome Outcome
	Began   time.Time
	Took    time.Duration // 0 as long as the stage is at work
}

// trailHop is a hop as its trail keeps it.
type trailHop struct {
	TrailHop
	trail  *Trail
	called atomic.Bool
}

type trailKey struct{}

// WithTrail returns a context with which a request keeps a trail: of the stages that it
// is handed to, and of those to which a stage hands it on by calling.
func WithTrail(ctx context.Context, t *Trail) context.Context {
	return context.WithValue(ctx, trailKey{}, t)
}

// begin notes that a stage gets the request.
func (t *Trail) begin(stage string) *trailHop {
	h := &trailHop{TrailHop: TrailHop{Stage: stage, Began: time.Now()}, trail: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hops = append(t.hops, h)
	return h
}

// end notes that the stage is done with the request.
func (h *trailHop) end(o Outcome) {
	h.trail.mu.Lock()
	h.Outcome, h.Took = o, time.Since(h.Began)
	ended := h.TrailHop
	h.trail.mu.Unlock()
	if h.trail.Ended != nil {
		h.trail.Ended(ended)
	}
}

// sofar is the hop as it is now: a stage that is at work serves, unless it has called.
func (h *trailHop) sofar() TrailHop {
	now := h.TrailHop
	if now.Outcome == "" {
		now.Outcome, now.Took = Served, time.Since(h.Began)
		if h.called.Load() {
			now.Outcome = Called
		}
	}
	return now
}

// answers says that an answer comes from the stage itself. A call that was given up, or
// whose body was broken off, is one that the caller goes on without.
func (h TrailHop) answers(inCall bool) bool {
	switch h.Outcome {
	case Served, Upgraded, Interrupted:
		return true
	case GivenUp, Refused:
		return inCall
	}
	return false
}

// String is the way so far as a list: STAGE;outcome=OUTCOME;ms=TIME, in the order in
// which the stages got the request. A stage that is at work serves, unless it has
// called. If no stage serves, the host itself answers.
func (t *Trail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	working, answered := false, false
	for _, hop := range t.hops {
		h := hop.sofar()
		working = working || hop.Outcome == ""
		answered = answered || h.answers(working)
		parts = append(parts, fmt.Sprintf("%s;outcome=%s;ms=%.3f", h.Stage, h.Outcome, float64(h.Took)/float64(time.Millisecond)))
	}
	if !answered {
		parts = append(parts, "host;outcome=served")
	}
	return strings.Join(parts, ", ")
}

// arrive notes that the stage of the exchange gets the request, on the trail if there
// is one.
func (x *exchange) arrive() {
	x.at, x.called = nil, &x.mark
	if t, ok := x.r.Context().Value(trailKey{}).(*Trail); ok {
		x.at = t.begin(x.stage)
		x.called = &x.at.called
	}
}
