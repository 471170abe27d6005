package supervisor

import "time"

// Status is where a stage stands.
type Status struct {
	Stage string `json:"stage"`
	// State is that of the current generation; "backing off" if it has ended and requests
	// wait for another, "down" if they are refused until there is one.
	State      string `json:"state"`
	Generation string `json:"generation,omitempty"`
	PID        int    `json:"pid,omitempty"`
	// Attached says that the process was started by hand. The host never kills it.
	Attached bool      `json:"attached,omitempty"`
	Version  string    `json:"version,omitempty"`
	Binary   string    `json:"binary"`
	Since    time.Time `json:"since,omitzero"`
	// Restarts is how often another process has taken the place of one that had ended.
	Restarts int `json:"restarts"`
	Claims   int `json:"claims"`
	// Failure is why the latest generation that failed did.
	Failure  string `json:"failure,omitempty"`
	Required bool   `json:"required"`
	// Delegates are the stages that the current generation may call.
	Delegates []string `json:"delegates,omitempty"`
	// Standby is the generation that stands by; StandbyFailure says why there is none.
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
	State      string    `json:"state"`
	PID        int       `json:"pid"`
	Since      time.Time `json:"since,omitzero"`
}

// Probation is the time after a swap in which it can be taken back.
type Probation struct {
	From     string    `json:"from"`
	To       string    `json:"to"`
	Until    time.Time `json:"until"`
	Requests int64     `json:"requests"`
	Failed   int64     `json:"failed"`
}

// SwapResult is how a swap ended.
type SwapResult struct {
	From string    `json:"from,omitempty"`
	To   string    `json:"to,omitempty"`
	At   time.Time `json:"at"`
	// Result is "done", "failed", "on probation" or "rolled back".
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
}

// Status returns where each stage stands, from head to tail.
func (s *Supervisor) Status() []Status {
	chain := s.chain()
	all := make([]Status, len(chain))
	for i, st := range chain {
		all[i] = st.status()
		for _, g := range s.liveOf(st) {
			if g.id != all[i].Generation && !st.standsBy(g) {
				all[i].Others = append(all[i].Others, *g.status())
			}
		}
		all[i].Probation = s.probationOf(st)
	}
	return all
}

func (g *generation) status() *Generation {
	return &Generation{Generation: g.id, State: g.machine.State().String(), PID: g.proc.PID(), Since: g.machine.Last().At}
}

func (s *stage) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Stage: s.name, State: "starting", Binary: s.spec.Binary, Restarts: s.restarts, Failure: s.failure,
		Attached: s.spec.Attach != "", Required: s.spec.Required, StandbyFailure: s.standbyFailure,
	}
	if g := s.current; g != nil {
		last := g.machine.Last()
		st.State, st.Since, st.Generation = last.To.String(), last.At, g.id
		st.PID, st.Version, st.Claims, st.Delegates = g.proc.PID(), g.version(), len(g.reported().claims), g.delegates()
	}
	if s.down || s.current == nil && s.failure != "" {
		st.State = Down
	}
	if s.standby != nil {
		st.Standby = s.standby.status()
	}
	if s.lastSwap != nil {
		last := *s.lastSwap
		st.LastSwap = &last
	}
	return st
}

// probationOf is nil if the stage is not on probation.
func (s *Supervisor) probationOf(st *stage) *Probation {
	p := s.probation.Load()
	if p == nil {
		return nil
	}
	for _, m := range p.moved {
		if m.stage != st {
			continue
		}
		status := &Probation{From: m.old.ID(), To: m.next.ID(), Until: p.until}
		if m.next != nil {
			if w := p.watched[m.next.listener.Path()]; w != nil {
				status.Requests, status.Failed = w.requests.Load(), w.failed.Load()
			}
		}
		return status
	}
	return nil
}

func (s *Supervisor) liveOf(st *stage) []*generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []*generation
	for g := range s.live {
		if g.stage == st {
			live = append(live, g)
		}
	}
	return live
}
