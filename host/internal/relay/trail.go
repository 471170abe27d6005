package relay

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Trail is the way of one request through the stages, see WithTrail. It can be used by
// any number of goroutines.
type Trail struct {
	// Ended is called when a stage is done with the request; it may be nil.
	Ended func(TrailHop)

	mu   sync.Mutex
	hops []TrailHop
}

// TrailHop is a stage on the way.
type TrailHop struct {
	Stage string
	// Outcome is empty as long as the stage is at work.
	Outcome Outcome
	Began   time.Time
	Took    time.Duration // 0 as long as the stage is at work
}

type trailKey struct{}

// WithTrail returns a context with which a request keeps a trail: of the stages that it
// is handed to, and of those to which a stage hands it on by calling.
func WithTrail(ctx context.Context, t *Trail) context.Context {
	return context.WithValue(ctx, trailKey{}, t)
}

// begin notes that a stage gets the request. The function that it returns notes the end.
func (t *Trail) begin(stage string) (end func(Outcome)) {
	hop := TrailHop{Stage: stage, Began: time.Now()}
	t.mu.Lock()
	i := len(t.hops)
	t.hops = append(t.hops, hop)
	t.mu.Unlock()
	return func(o Outcome) {
		hop.Outcome, hop.Took = o, time.Since(hop.Began)
		t.mu.Lock()
		t.hops[i] = hop
		t.mu.Unlock()
		if t.Ended != nil {
			t.Ended(hop)
		}
	}
}

// String is the way so far as a list: STAGE;outcome=OUTCOME;ms=TIME, in the order in
// which the stages got the request. A stage that is at work has called if another got
// the request since, and serves if not. If none is, the host itself answers.
func (t *Trail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	working := false
	for i, h := range t.hops {
		if h.Outcome == "" {
			working = true
			h.Took, h.Outcome = time.Since(h.Began), Served
			if i+1 < len(t.hops) {
				h.Outcome = "called"
			}
		}
		parts = append(parts, fmt.Sprintf("%s;outcome=%s;ms=%.3f", h.Stage, h.Outcome, float64(h.Took)/float64(time.Millisecond)))
	}
	if !working {
		parts = append(parts, "host;outcome=served")
	}
	return strings.Join(parts, ", ")
}

// trail notes that the stage of the exchange gets the request, if anybody wants to know.
func (x *exchange) trail() (end func(Outcome)) {
	if t, ok := x.r.Context().Value(trailKey{}).(*Trail); ok {
		return t.begin(x.stage)
	}
	return func(Outcome) {}
}
