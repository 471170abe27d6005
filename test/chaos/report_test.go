package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// report sums up the events.
type report struct {
	windows []window
	// judged, excused and ended are how many failures, broken streams, and ends of watches judge has seen.
	judged, excused, ended int
	// strict is set if not even a crash excuses the failure of a safe request.
	strict bool
}

// window is the time from an event until the server has recovered.
type window struct {
	event
	stage    string
	from, to time.Time
	stall    time.Duration
	whose    string
}

func (r *report) happened(e event, stage string, from, to time.Time, c *clients) {
	w := window{event: e, stage: stage, from: from, to: to}
	w.stall, w.whose = c.longest(from, to)
	r.windows = append(r.windows, w)
}

// during returns the event during which something ended: the latest that began before that
// end. Nil if there was none.
func (r *report) during(end time.Time) *window {
	var found *window
	for i := range r.windows {
		if r.windows[i].from.Before(end) {
			found = &r.windows[i]
		}
	}
	return found
}

// judge reports the failures since its last call that no event excuses.
func (r *report) judge(t *testing.T, c *clients) {
	t.Helper()
	failures, breaks, ends := c.failures()
	for _, f := range failures[r.judged:] {
		w := r.during(f.to)
		if !f.wrong && w != nil && w.class.failsRequests() && !(f.safe && r.strict) {
			continue
		}
		name, what := "no event", "failed"
		if w != nil {
			name = fmt.Sprintf("%s of %s, %s after its begin", w.kind, w.stage, f.to.Sub(w.from).Round(time.Millisecond))
		}
		if f.wrong {
			what = "got a wrong response"
		}
		t.Errorf("%s %s (%s) because of %s: %v", f.at(), f.what, what, name, f.err)
	}
	for _, b := range breaks[r.excused:] {
		if !r.excuses(b) {
			t.Errorf("%s a stream, %s old, has broken without a reason", b.at(), b.to.Sub(b.from).Round(time.Millisecond))
		}
	}
	for _, e := range ends[r.ended:] {
		if !r.endsWatch(e) {
			t.Errorf("%s a watch of %s, %s old, has ended", e.at(), e.what, e.to.Sub(e.from).Round(time.Millisecond))
		}
	}
	r.judged, r.excused, r.ended = len(failures), len(breaks), len(ends)
}

// excuses reports whether a stream was allowed to break when it did: because its
// stage died, or was replaced more than drainTimeout ago, or all ended.
func (r *report) excuses(b request) bool {
	return slices.ContainsFunc(r.windows, func(w window) bool {
		since := b.to.Sub(w.from)
		replaced := since >= drainTimeout && b.from.Before(w.to)
		within := since >= 0 && !b.to.After(w.to)
		return w.class != crash && replaced || w.class.failsRequests() && within && w.stage == "core" || w.class == restart && within
	})
}

// informerPause is how long an informer waits at most before it watches again.
const informerPause = 30 * time.Second

// endsWatch reports whether a watch was allowed to end when it did: the host was replaced, which has the connections of the
// clients, or has been, so that its stages do not know what was before, and do not even begin the watch. One of an aggregated
// server is in the hands of the aggregator, and breaks off with its process, which is swapped together with core.
func (r *report) endsWatch(e failure) bool {
	return slices.ContainsFunc(r.windows, func(w window) bool {
		within := !e.to.Before(w.from) && !e.to.After(w.to)
		after := e.from.After(w.from) && e.to.Sub(w.to) < informerPause && e.to.Sub(e.from) < time.Second
		if e.what == flunders.Resource {
			return within || e.to.After(w.to) && e.to.Sub(w.to) < 2*drainTimeout
		}
		return w.class == restart && (within || after)
	})
}

func (r request) at() string { return r.to.Format("15:04:05.000") }

// String is a table for people.
func (r *report) String() string {
	type row struct {
		kind, stage, whose string
		count              int
		stall, took        time.Duration
	}
	var rows []*row
	for _, w := range r.windows {
		i := slices.IndexFunc(rows, func(x *row) bool { return x.kind == w.kind && x.stage == w.stage })
		if i < 0 {
			i = len(rows)
			rows = append(rows, &row{kind: w.kind, stage: w.stage})
		}
		rows[i].count++
		if w.stall > rows[i].stall {
			rows[i].stall, rows[i].whose = w.stall, w.whose
		}
		rows[i].took = max(rows[i].took, w.to.Sub(w.from))
	}
	slices.SortFunc(rows, func(a, b *row) int {
		return slices.Compare([]string{a.kind, a.stage}, []string{b.kind, b.stage})
	})
	out := fmt.Sprintf("%-16s %-12s %6s %14s %14s  %s\n", "event", "stage", "count", "longest event", "longest stall", "whose")
	for _, x := range rows {
		out += fmt.Sprintf("%-16s %-12s %6d %14s %14s  %s\n", x.kind, x.stage, x.count, x.took.Round(time.Millisecond), x.stall.Round(time.Millisecond), x.whose)
	}
	return out
}

// String sums up what the clients did.
func (c *clients) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := 0
	for _, r := range c.requests {
		requests += len(r)
	}
	changes, informers := 0, ""
	for _, gvr := range c.written {
		informers += fmt.Sprintf("; the informer of %s got %s", gvr.Resource, c.streams[gvr])
	}
	for _, writers := range c.changes {
		for _, w := range writers {
			changes += len(w)
		}
	}
	return fmt.Sprintf("%d requests, %d that failed in crashes and suspensions, "+
		"%d acknowledged writes of %d objects, %d streams that broke; %s%s",
		requests, len(c.failed), changes, len(c.acknowledged), len(c.breaks), c.history, informers)
}
