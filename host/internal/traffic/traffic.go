// Package traffic measures the requests of stages over the last minute: how many there were, where they came from, how they
// ended and how long they took.
package traffic

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/relay"
)

const (
	// interval is how often the counters are copied, and copies how many of them are kept: the window is their product.
	interval = 5 * time.Second
	copies   = 12
)

// Stage is what a stage has done in the window.
type Stage struct {
	Stage string `json:"stage"`
	// PerSecond is how many requests came to the stage. Those that it handed on count.
	PerSecond float64 `json:"requestsPerSecond"`
	// FailedShare is the part of them that it responded to with a status of 500 or more, or not at all; from 0 to 1.
	FailedShare float64 `json:"failedShare"`
	// P50 and P99 are how long half of the responses, and 99 of 100, took at most, in seconds and to an eighth; 0 without
	// responses. Watches and upgraded connections, which last as long as clients want, do not count, nor do requests that were
	// declined or given up.
	P50 float64 `json:"p50Seconds"`
	P99 float64 `json:"p99Seconds"`
	// From is where the requests came from: the host, whose name is empty, or a stage upstream that declined or called.
	From []Hop `json:"from,omitempty"`
}

// Hop is the way from one stage to another.
type Hop struct {
	From      string  `json:"from"`
	PerSecond float64 `json:"requestsPerSecond"`
}

// Meter measures. Its methods may be called concurrently.
type Meter struct {
	counters atomic.Pointer[map[way]*counters]

	mu sync.Mutex // adds counters, and guards what follows
	// past are copies of the counters, the oldest first.
	past []sample
}

// New returns a meter that has measured nothing.
func New() *Meter {
	m := &Meter{past: []sample{{at: time.Now()}}}
	m.counters.Store(&map[way]*counters{})
	return m
}

// way is where a request comes from, and the stage that gets it.
type way struct{ from, to string }

// counters count since the start.
type counters struct {
	requests, failed atomic.Uint64
	took             [buckets]atomic.Uint64
}

// counts are counters at one time.
type counts struct {
	requests, failed uint64
	took             [buckets]uint64
}

type sample struct {
	at   time.Time
	ways map[way]*counts
}

// Observe counts a hop when it has ended.
func (m *Meter) Observe(h relay.Hop) {
	if h.Outcome == relay.Replayed || h.Outcome == relay.Resumed { // another hop follows for the same request
		return
	}
	c := m.of(way{h.From, h.Stage})
	c.requests.Add(1)
	if h.Failed() {
		c.failed.Add(1)
	}
	if !h.Streams && (h.Outcome == relay.Served || h.Outcome == relay.Called) {
		c.took[bucketOf(h.Took)].Add(1)
	}
}

// of returns the counters of a way.
func (m *Meter) of(w way) *counters {
	if c := (*m.counters.Load())[w]; c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := *m.counters.Load()
	c := all[w]
	if c == nil {
		c, all = &counters{}, maps.Clone(all)
		all[w] = c
		m.counters.Store(&all)
	}
	return c
}

// Run moves the window until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.mu.Lock()
			m.past = append(m.past, m.sample())
			m.past = m.past[max(0, len(m.past)-copies):]
			m.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// sample copies the counters.
func (m *Meter) sample() sample {
	s := sample{at: time.Now(), ways: map[way]*counts{}}
	for w, c := range *m.counters.Load() {
		n := &counts{requests: c.requests.Load(), failed: c.failed.Load()}
		for i := range c.took {
			n.took[i] = c.took[i].Load()
		}
		s.ways[w] = n
	}
	return s
}

// Stages returns what each of the stages has done in the window.
func (m *Meter) Stages(names []string) []Stage {
	m.mu.Lock()
	before, now := m.past[0], m.sample()
	m.mu.Unlock()
	seconds := max(now.at.Sub(before.at), time.Second).Seconds()
	all := make([]Stage, len(names))
	for i, name := range names {
		st, sum := Stage{Stage: name}, counts{}
		for w, c := range now.ways {
			if w.to != name {
				continue
			}
			n := *c
			if b := before.ways[w]; b != nil {
				n.subtract(b)
			}
			if n.requests > 0 {
				st.From = append(st.From, Hop{From: w.from, PerSecond: float64(n.requests) / seconds})
			}
			sum.add(&n)
		}
		slices.SortFunc(st.From, func(a, b Hop) int { return cmp.Compare(a.From, b.From) })
		if st.PerSecond = float64(sum.requests) / seconds; sum.requests > 0 {
			st.FailedShare = float64(sum.failed) / float64(sum.requests)
		}
		st.P50, st.P99 = quantile(&sum.took, 0.5).Seconds(), quantile(&sum.took, 0.99).Seconds()
		all[i] = st
	}
	return all
}

func (c *counts) subtract(b *counts) {
	c.requests, c.failed = c.requests-b.requests, c.failed-b.failed
	for i := range c.took {
		c.took[i] -= b.took[i]
	}
}

func (c *counts) add(b *counts) {
	c.requests, c.failed = c.requests+b.requests, c.failed+b.failed
	for i := range c.took {
		c.took[i] += b.took[i]
	}
}
