package relay

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// HopLog records the stages that one request is handed to; see WithHopLog. It can be used
// by any number of goroutines.
type HopLog struct {
	// Ended is called when a stage is done with the request; it may be nil.
	Ended func(LoggedHop)

	mu   sync.Mutex
	hops []*loggedHop
}

// LoggedHop is a stage that has got the request.
type LoggedHop struct {
	Stage string
	// Outcome is empty as long as the stage is at work.
	Outcome Outcome
	Began   time.Time
	Took    time.Duration // 0 as long as the stage is at work
}

// loggedHop is a hop as its log keeps it.
type loggedHop struct {
	LoggedHop
	log  *HopLog
	role role
}

type hopLogKey struct{}

// WithHopLog returns a context with which a request records its hops: the stages that it
// is handed to, and those to which a stage hands it on by calling.
func WithHopLog(ctx context.Context, l *HopLog) context.Context {
	return context.WithValue(ctx, hopLogKey{}, l)
}

// begin records that a stage gets the request.
func (l *HopLog) begin(stage string) *loggedHop {
	h := &loggedHop{LoggedHop: LoggedHop{Stage: stage, Began: time.Now()}, log: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hops = append(l.hops, h)
	return h
}

// end records that the stage is done with the request.
func (h *loggedHop) end(o Outcome) {
	h.log.mu.Lock()
	h.Outcome, h.Took = o, time.Since(h.Began)
	ended := h.LoggedHop
	h.log.mu.Unlock()
	if h.log.Ended != nil {
		h.log.Ended(ended)
	}
}

// now is the hop at this moment: a stage that is at work serves, unless it has called.
func (h *loggedHop) now() LoggedHop {
	now := h.LoggedHop
	if now.Outcome == "" {
		now.Outcome, now.Took = Served, time.Since(h.Began)
		if h.role.hasCalled() {
			now.Outcome = Called
		}
	}
	return now
}

// responds reports whether a response comes from the stage itself. A call that was given
// up, or whose body was broken off, is one that the caller goes on without.
func (h LoggedHop) responds(inCall bool) bool {
	switch h.Outcome {
	case Served, Upgraded, Interrupted:
		return true
	case GivenUp, Refused:
		return inCall
	}
	return false
}

// String is the list of hops so far: STAGE;outcome=OUTCOME;ms=TIME, in the order in
// which the stages got the request. A stage that is at work serves, unless it has
// called. If no stage serves, the host itself responds.
func (l *HopLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	working, responded := false, false
	for _, hop := range l.hops {
		h := hop.now()
		working = working || hop.Outcome == ""
		responded = responded || h.responds(working)
		parts = append(parts, fmt.Sprintf("%s;outcome=%s;ms=%.3f", h.Stage, h.Outcome, float64(h.Took)/float64(time.Millisecond)))
	}
	if !responded {
		parts = append(parts, "host;outcome=served")
	}
	return strings.Join(parts, ", ")
}

// WithHops returns a context with which a request records its hops, and where: in the log that ctx has, if it has one.
func WithHops(ctx context.Context) (context.Context, *HopLog) {
	if l, ok := ctx.Value(hopLogKey{}).(*HopLog); ok {
		return ctx, l
	}
	l := &HopLog{}
	return WithHopLog(ctx, l), l
}

// Took reports whether a stage has taken the request: it has responded, or has called the next one.
func (l *HopLog) Took(stage string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hops {
		if h.Stage == stage && (h.Outcome == Served || h.Outcome == Called) {
			return true
		}
	}
	return false
}
