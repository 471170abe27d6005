package canary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/percent"
)

// Side is one of the two processes.
type Side int

// The sides.
const (
	Old Side = iota
	New
)

// Kind is what kind of request it was.
type Kind struct {
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
}

// Outcome is how a request ended.
type Outcome struct {
	// Failed: with a status of 500 or more, or without a response.
	Failed bool
	// Refused: a write that the stage has not accepted as it is. Who may write is decided by the host,
	// so that this was admission or validation.
	Refused bool
	// Took is 0 of a request that lasts as long as its client likes.
	Took time.Duration
}

// Counts are those of one side.
type Counts struct {
	Requests int64 `json:"requests"`
	Failed   int64 `json:"failed"`
	Refused  int64 `json:"refused"`
	// Timed are the requests that count for Took, which is what they took together.
	Timed int64         `json:"timed"`
	Took  time.Duration `json:"tookNanoseconds"`
	// Longest is the longest of them.
	Longest time.Duration `json:"longestNanoseconds"`
}

func (c *Counts) add(o Outcome) {
	c.Requests++
	if o.Failed {
		c.Failed++
	}
	if o.Refused {
		c.Refused++
	}
	if o.Took > 0 {
		c.Timed++
		c.Took += o.Took
		c.Longest = max(c.Longest, o.Took)
	}
}

func (c *Counts) sum(of Counts) {
	c.Requests += of.Requests
	c.Failed += of.Failed
	c.Refused += of.Refused
	c.Timed += of.Timed
	c.Took += of.Took
	c.Longest = max(c.Longest, of.Longest)
}

// Mean is what a request has taken on average, 0 if there was none.
func (c Counts) Mean() time.Duration {
	if c.Timed == 0 {
		return 0
	}
	return c.Took / time.Duration(c.Timed)
}

// maxKinds bounds the kinds of requests that are told apart: resources are what clients say.
const maxKinds = 5000

// Comparison counts the requests of both sides. Its methods can be called from any goroutine.
type Comparison struct {
	mu  sync.Mutex
	all map[Kind]*[2]Counts
}

// Add counts a request.
func (c *Comparison) Add(side Side, kind Kind, o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.all[kind]
	if counts == nil {
		if len(c.all) >= maxKinds {
			kind = Kind{Resource: "others"}
		}
		if c.all == nil {
			c.all = map[Kind]*[2]Counts{}
		}
		if counts = c.all[kind]; counts == nil {
			counts = &[2]Counts{}
			c.all[Kind{strings.Clone(kind.Verb), strings.Clone(kind.Resource)}] = counts // they are parts of requests
		}
	}
	counts[side].add(o)
}

// Begin begins anew, with what the old side has done so far if keep is set.
func (c *Comparison) Begin(keep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !keep {
		c.all = nil
		return
	}
	for _, counts := range c.all {
		counts[New] = Counts{}
	}
}

// Row compares the requests of one kind.
type Row struct {
	Kind
	Old Counts `json:"old"`
	New Counts `json:"new"`
}

// Rows are sorted: first what the new side has had most of.
func (c *Comparison) Rows() []Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := make([]Row, 0, len(c.all))
	for kind, counts := range c.all {
		rows = append(rows, Row{Kind: kind, Old: counts[Old], New: counts[New]})
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.New.Requests, a.New.Requests), cmp.Compare(b.Old.Requests, a.Old.Requests),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return rows
}

// Difference is how the new side does beside the old one, all kinds together.
type Difference struct {
	Old Counts `json:"old"`
	New Counts `json:"new"`
	// Compared is how many requests of the new side were compared, and Alone are the others: those of kinds that the
	// old side has not had, or too seldom.
	Compared int64  `json:"compared"`
	Alone    Counts `json:"alone"`
	// Failed and Refused are by how much the share of such requests is larger among those that were compared, from -1
	// to 1; Latency is by which part requests take longer, 0.5 is half as long again. Each is 0 as long as
	// that is not known.
	Failed  float64 `json:"failed"`
	Refused float64 `json:"refused"`
	Latency float64 `json:"latency"`
}

// LeastRequests is how many requests say something: of one kind on each side, and of a new process together.
const LeastRequests = 20

// Lacking is how many more requests the new side must have had before the next step.
func (d Difference) Lacking() int64 { return max(0, LeastRequests-d.New.Requests) }

// Says reports whether enough was compared for the difference to say something.
func (d Difference) Says() bool { return d.Compared >= LeastRequests }

// Compare returns how the new side does. Clients differ in what they ask for, so that each kind is compared with
// itself: what the requests of the new side would have come to on the old one. Kinds of which the old side has had few
// requests are compared together, if that makes enough of them, and say nothing of how long requests take.
func Compare(rows []Row) Difference {
	var d Difference
	var few Row
	var failed, refused int64
	var failures, refusals float64 // that were expected
	var took, expected time.Duration
	compare := func(r Row) bool {
		if r.Old.Requests < LeastRequests {
			return false
		}
		n := float64(r.New.Requests) / float64(r.Old.Requests)
		failed, failures = failed+r.New.Failed, failures+n*float64(r.Old.Failed)
		refused, refusals = refused+r.New.Refused, refusals+n*float64(r.Old.Refused)
		d.Compared += r.New.Requests
		return true
	}
	for _, r := range rows {
		d.Old.sum(r.Old)
		d.New.sum(r.New)
		switch {
		case compare(r):
			if r.Old.Timed >= LeastRequests && r.New.Timed >= LeastRequests {
				took += r.New.Took
				expected += r.Old.Mean() * time.Duration(r.New.Timed)
			}
		case r.Old.Requests == 0:
			d.Alone.sum(r.New)
		case r.New.Requests > 0:
			few.Old.sum(r.Old)
			few.New.sum(r.New)
		}
	}
	if !compare(few) {
		d.Alone.sum(few.New)
	}
	if !d.Says() {
		return d
	}
	n := float64(d.Compared)
	d.Failed, d.Refused = (float64(failed)-failures)/n, (float64(refused)-refusals)/n
	if expected > 0 {
		d.Latency = float64(took)/float64(expected) - 1
	}
	return d
}

// Limits are by how much the new side may do worse. 0 is any.
type Limits struct {
	Failed  float64 `json:"failed,omitempty"`
	Refused float64 `json:"refused,omitempty"`
	Latency float64 `json:"latency,omitempty"`
}

// maxLimit is the largest limit: requests may take a hundred times as long.
const maxLimit = 100

// Parse takes a condition refused=N% or latency=N%. It reports whether it is one of these.
func (l *Limits) Parse(condition string) (bool, error) {
	name, value, _ := strings.Cut(condition, "=")
	limit := map[string]*float64{"refused": &l.Refused, "latency": &l.Latency}[name]
	if limit == nil {
		return false, nil
	}
	share, err := percent.Parse(value, maxLimit)
	if err != nil {
		return true, fmt.Errorf("%s: %w", name, err)
	}
	*limit = share
	return true, nil
}

// Exceeded says which limit the new side is beyond; empty if none. Requests that were not compared may not fail either;
// whether they are refused is up to their clients.
func (l Limits) Exceeded(d Difference) string {
	share := func(what string, of, all int64, difference, limit float64) string {
		return fmt.Sprintf("%d of %d requests to the new process were %s, which is %s more than those to the old one (the limit is %s)",
			of, all, what, percent.Format(difference), percent.Format(limit))
	}
	alone := d.Alone
	switch {
	case l.Failed > 0 && d.Failed > l.Failed:
		return share("errors", d.New.Failed, d.New.Requests, d.Failed, l.Failed)
	case l.Failed > 0 && alone.Requests >= LeastRequests && float64(alone.Failed) > l.Failed*float64(alone.Requests):
		return fmt.Sprintf("%d of %d requests to the new process, of kinds of which the old one has had too few, were "+
			"errors (the limit is %s)", alone.Failed, alone.Requests, percent.Format(l.Failed))
	case l.Refused > 0 && d.Refused > l.Refused:
		return share("refused", d.New.Refused, d.New.Requests, d.Refused, l.Refused)
	case l.Latency > 0 && d.Latency > l.Latency:
		return fmt.Sprintf("requests to the new process take %s longer than the same to the old one (the limit is %s)",
			percent.Format(d.Latency), percent.Format(l.Latency))
	}
	return ""
}
