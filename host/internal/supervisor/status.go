package supervisor

import (
	"slices"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// Status is where a stage stands.
type Status struct {
	Stage string `json:"stage"`
	// State is that of the current generation; "backing off" if it has ended and requests
	// wait for another, "down" if they are refused until there is one.
	State      State  `json:"state"`
	Generation string `json:"generation,omitempty"`
	PID        int    `json:"pid,omitempty"`
	// Attached reports whether the process was started by hand. The host never kills it.
	Attached bool `json:"attached,omitempty"`
	// Grants are what the stage may do beyond what every stage may.
	Grants grants.Grants `json:"grants"`
	// Isolation has the names of what isolates the process, empty if nothing does.
	Isolation []string `json:"isolation"`
	// IsolationLacks says which means this machine lacks, and what the stage can do for want of each.
	IsolationLacks []string `json:"isolationLacks,omitempty"`
	Version        string   `json:"version,omitempty"`
	// Emulates is the minor release of Kubernetes as which the process serves, empty if it is that of Version.
	Emulates string `json:"emulates,omitempty"`
	// OtherRelease tells that the process has come back, after an end, from a binary of another release of Kubernetes:
	// no change of the chain has decided that. Otherwise it is empty.
	OtherRelease string `json:"otherRelease,omitempty"`
	// Usage is what the process used when that was last measured.
	Usage  *Usage    `json:"usage,omitempty"`
	Binary string    `json:"binary"`
	Since  time.Time `json:"since,omitzero"`
	// Restarts is how often another process has taken the place of one that had ended.
	Restarts int `json:"restarts"`
	// RecentRestarts are those of the last quarter of an hour.
	RecentRestarts int `json:"recentRestarts"`
	// Failures is how many processes in a row have ended early, or have not come up.
	Failures int `json:"failures"`
	// NextStart is when the next attempt is made to start a process, or the latest was
	// made, of a stage that has none.
	NextStart time.Time `json:"nextStart,omitzero"`
	Claims    int       `json:"claims"`
	// Failure is why the latest generation that failed did.
	Failure  string `json:"failure,omitempty"`
	Required bool   `json:"required"`
	// Delegates are the stages that the current generation may call.
	Delegates []string `json:"delegates,omitempty"`
	// Standby is the generation that stands by; StandbyFailure is why it is missing.
	Standby        *Generation `json:"standby,omitempty"`
	StandbyFailure string      `json:"standbyFailure,omitempty"`
	// Probation is set while the generation before can take its place again.
	Probation *Probation `json:"probation,omitempty"`
	// LastSwap is how the latest swap ended. One that was refused since another change was
	// under way does not count.
	LastSwap *SwapResult `json:"lastSwap,omitempty"`
	// Others are generations that come or go.
	Others []Generation `json:"others,omitempty"`
}

// Generation is a process of a stage besides the one that serves.
type Generation struct {
	Generation string    `json:"generation"`
	State      State     `json:"state"`
	Version    string    `json:"version,omitempty"`
	PID        int       `json:"pid"`
	Since      time.Time `json:"since,omitzero"`
	Usage      *Usage    `json:"usage,omitempty"`
}

// Probation is the time after a swap in which it can be taken back.
type Probation struct {
	From     string    `json:"from"`
	To       string    `json:"to"`
	Until    time.Time `json:"until"`
	Requests int64     `json:"requests"`
	Failed   int64     `json:"failed"`
	// Canary is set if only a share of the requests has moved, or the last step of a canary is on.
	Canary *CanaryStatus `json:"canary,omitempty"`
}

// SwapResult is how a swap ended.
type SwapResult struct {
	From string    `json:"from,omitempty"`
	To   string    `json:"to,omitempty"`
	At   time.Time `json:"at"`
	// Result is "done", "failed", "on probation", "canary", "rolled back" or, on request,
	// "reverted".
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
}

// State is that of a process, in the words of package lifecycle, or Down.
type State string

// Down is the state of a stage, besides those of its generation: there is no process, and
// requests are refused.
const Down State = "down"

// States are all values that Status.State can have.
func States() []string {
	states := []string{string(Down)}
	for s := lifecycle.Starting; s <= lifecycle.BackingOff; s++ {
		states = append(states, s.String())
	}
	return states
}

// Serves reports whether requests go to the process.
func (s State) Serves() bool { return s == State(lifecycle.Serving.String()) }

// Gone reports whether there is no process.
func (s State) Gone() bool {
	switch string(s) {
	case string(Down), lifecycle.BackingOff.String(), lifecycle.Failed.String(), lifecycle.Stopped.String():
		return true
	}
	return false
}

// Severity is how bad a state is.
type Severity string

// Good is what serves, or could; Bad what does not; Busy what is on its way.
const (
	Good Severity = "good"
	Busy Severity = "busy"
	Bad  Severity = "bad"
)

// Severity returns how bad the state is.
func (s State) Severity() Severity {
	switch {
	case s.Serves() || s == State(lifecycle.StandingBy.String()):
		return Good
	case s.Gone():
		return Bad
	}
	return Busy
}

// Status returns where each stage stands, from head to tail.
func (s *Supervisor) Status() []Status {
	held := s.lock()
	all := make([]Status, len(held.chain))
	p := held.probation.Load()
	for i, st := range held.chain {
		all[i] = st.status(held)
		if p != nil {
			all[i].Probation = p.status(held, st)
		}
	}
	held.unlock()
	if p != nil && p.canary != nil {
		for i := range all {
			if of := p.canary.comparisons[all[i].Stage]; of != nil && all[i].Probation != nil {
				all[i].Probation.compared(of.Rows())
			}
		}
	}
	return all
}

// compared adds how the two sides of a canary do.
func (p *Probation) compared(rows []canary.Row) {
	p.Canary.Rows, p.Canary.Difference = rows, canary.Compare(rows)
	p.Requests, p.Failed = p.Canary.Difference.New.Requests, p.Canary.Difference.New.Failed
}

// Failure returns why the latest generation of a stage that is down failed; empty if it is not down.
func (s *Supervisor) Failure(name string) string {
	held := s.lock()
	defer held.unlock()
	if st, err := held.stage(name); err == nil {
		if status := st.status(held); status.State == Down {
			return status.Failure
		}
	}
	return ""
}

// status is that of the stage without its probation.
func (s *stage) status(*locked) Status {
	st := Status{
		Stage: s.name, State: "starting", Binary: s.guarded.spec.Binary, Restarts: s.guarded.restarts.total,
		RecentRestarts: s.guarded.restarts.since(time.Now().Add(-recently)), Failures: s.guarded.failures,
		NextStart: s.guarded.nextStart, Failure: s.guarded.failure,
		Isolation: []string{}, Grants: s.guarded.spec.Grants,
		OtherRelease: s.guarded.otherRelease, Attached: s.guarded.spec.Attach != "", Required: s.guarded.spec.Required,
		StandbyFailure: s.guarded.standbyFailure,
	}
	if g := s.guarded.current(); g != nil {
		last := s.guarded.machine.Last(g.ID())
		st.State, st.Since, st.Generation = State(last.To.String()), last.At, g.ID()
		st.Isolation, st.IsolationLacks = append(st.Isolation, g.Isolation()...), g.IsolationLacks()
		st.PID, st.Version, st.Claims, st.Delegates = g.PID(), g.Version(), len(g.Report().Claims), g.Delegates()
		st.Usage = s.guarded.usageOf(g)
		st.Emulates = Emulates(g.Spec(), g.Description().GetKubernetes().GetRelease())
		if s.guarded.machine.Requests() == lifecycle.Refused {
			st.State = Down
		}
	} else if s.guarded.failure != "" {
		st.State = Down
	}
	for _, g := range s.guarded.generations {
		switch g.ID() {
		case s.guarded.machine.Current():
		case s.guarded.machine.Standby():
			standby := s.guarded.generationStatus(g)
			st.Standby = &standby
		default:
			st.Others = append(st.Others, s.guarded.generationStatus(g))
		}
	}
	slices.SortFunc(st.Others, func(a, b Generation) int { return a.Since.Compare(b.Since) })
	if s.guarded.lastSwap != nil {
		last := *s.guarded.lastSwap
		st.LastSwap = &last
	}
	return st
}

func (s *stageState) generationStatus(g *generation.Generation) Generation {
	last := s.machine.Last(g.ID())
	return Generation{
		Generation: g.ID(), State: State(last.To.String()), Version: g.Version(), PID: g.PID(), Since: last.At,
		Usage: s.usageOf(g),
	}
}

// status is that of a stage's probation, without what a canary compares; nil if it is not part of the change.
func (p *probation) status(_ *locked, st *stage) *Probation {
	for _, m := range p.moved {
		if m.stage != st {
			continue
		}
		status := &Probation{From: id(m.old), To: id(m.next), Until: p.until}
		if p.canary != nil {
			status.Canary = &CanaryStatus{Plan: p.canary.plan, Step: p.canary.step, Until: p.canary.until, Waits: p.canary.waits}
			return status
		}
		if m.next != nil {
			if w := p.watched[m.next.Listener().Path()]; w != nil {
				status.Requests, status.Failed = w.requests.Load(), w.failed.Load()
			}
		}
		return status
	}
	return nil
}
