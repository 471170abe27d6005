package supervisor

import "time"

// Status is where a stage stands.
type Status struct {
	Stage string `json:"stage"`
	// State is that of the current generation; "down" if it has ended and
	// requests are refused until there is another.
	State      string `json:"state"`
	Generation string `json:"generation,omitempty"`
	PID        int    `json:"pid,omitempty"`
	// Attached says that the process was started by hand. The host never kills it.
	Attached bool      `json:"attached,omitempty"`
	Version  string    `json:"version,omitempty"`
	Binary   string    `json:"binary"`
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts"`
	Claims   int       `json:"claims"`
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
	// LastSwap is how the latest swap ended.
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
	all := make([]Status, len(s.stages))
	for i, st := range s.stages {
		all[i] = st.status()
		for _, g := range s.liveOf(st) {
			if g.id != all[i].Generation {
				all[i].Others = append(all[i].Others, Generation{
					Generation: g.id, State: g.machine.State().String(), PID: g.proc.PID(), Since: g.machine.Last().At,
				})
			}
		}
	}
	return all
}

func (s *stage) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Stage: s.spec.Name, State: "starting", Binary: s.spec.Binary, Attached: s.spec.Attach != "", Restarts: s.restarts, Failure: s.failure}
	if g := s.current; g != nil {
		last := g.machine.Last()
		st.State, st.Since, st.Generation = last.To.String(), last.At, g.id
		st.PID, st.Version, st.Claims = g.proc.PID(), g.proc.Description().GetVersion(), len(g.reported().claims)
	}
	if s.down {
		st.State = "down"
	}
	return st
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
