package relay

// Stage is a stage as Set takes it.
type Stage struct {
	Name string
	// Socket is that of its process; empty if it cannot be reached.
	Socket string
	// Refusal is the value of header.Undelivered in the host's own answers to requests
	// that no process has accepted from the socket. Only they may be sent again, so no
	// stage can know it. There are no such answers if it is empty.
	Refusal string
	// Held says that requests are to wait, since another process is about to come up on
	// the same socket.
	Held bool
}

// Set makes stages the chain, in this order, for all requests that begin from now on.
// A stage has the same Endpoint for as long as it has the same socket; the others are
// closed, and requests that they have go on. Use either Set or Swap, one call at a time.
func (c *Chain) Set(table Table, stages []Stage) {
	old := map[string]*Endpoint{}
	if s := c.state.Load(); s != nil {
		for _, l := range s.Links {
			if l.Endpoint != nil {
				old[l.Name] = l.Endpoint
			}
		}
	}
	s := &Snapshot{Table: table, Links: make([]Link, len(stages))}
	for i, st := range stages {
		e := old[st.Name]
		switch {
		case st.Socket == "":
			e = nil
		case e == nil || e.Socket() != st.Socket:
			e = newEndpoint(st.Name, st.Socket, *c.hold.Load())
			e.refusal = st.Refusal
		default:
			delete(old, st.Name)
		}
		if e != nil && st.Held {
			e.Hold()
		} else if e != nil {
			e.Resume()
		}
		s.Links[i] = Link{Name: st.Name, Endpoint: e}
	}
	c.Swap(s)
	for _, e := range old {
		c.leaving.add(e)
		e.Close()
	}
}

// Load is what a stage has to do.
type Load struct {
	Stage string `json:"stage"`
	// InFlight are the requests that are with the stage, Waiting those that wait for it.
	InFlight int `json:"inFlight"`
	Waiting  int `json:"waiting"`
}

// Loads returns what each stage of the chain has to do, from head to tail.
func (c *Chain) Loads() []Load {
	s := c.state.Load()
	if s == nil {
		return nil
	}
	loads := make([]Load, len(s.Links))
	for i, l := range s.Links {
		loads[i].Stage = l.Name
		if l.Endpoint != nil {
			loads[i].InFlight, loads[i].Waiting = l.Endpoint.InFlight(), l.Endpoint.Waiting()
		}
	}
	return loads
}
