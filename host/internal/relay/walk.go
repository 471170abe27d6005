package relay

import (
	"errors"
	"net/http"
	"slices"
)

// walk is the way of one request through the chain. It keeps the order that the chain
// had when the request came, and looks up by name where a stage can be reached now: a
// stage that has been removed is skipped.
type walk struct {
	*exchange
	// snapshot is the state of the chain when the request came.
	snapshot *Snapshot
	// after is the stage behind which the walk begins; empty for the whole chain.
	after string
	// asked are the stages that have declined, kept only once the chain has changed.
	asked []string
}

// relayAfter hands the request to the stages behind one, or to all if after is empty,
// until one does not decline.
func (c *Chain) relayAfter(w http.ResponseWriter, r *http.Request, s *Snapshot, after string) {
	x := walk{exchange: newExchange(c, w, r), snapshot: s, after: after}
	defer x.release()
	if x.inOrder() || x.latecomers() {
		return
	}
	x.leave()
	c.config.NotFound.ServeHTTP(w, r)
}

// relayTo hands the request to one stage alone.
func (c *Chain) relayTo(w http.ResponseWriter, r *http.Request, s *Snapshot, stage string, e *Endpoint) {
	x := walk{exchange: newExchange(c, w, r), snapshot: s}
	defer x.release()
	x.stage = stage
	if x.hop(s, e) {
		return
	}
	x.leave()
	c.config.NotFound.ServeHTTP(w, r)
}

// staged returns a handler for a process of a stage that does not serve in the chain yet.
func (c *Chain) staged(stage, socket string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.snapshot(w, r, ""); s != nil {
			e := newEndpoint(stage, socket, c.config.Hold)
			defer e.Close()
			c.relayTo(w, r, s, stage, e)
		}
	})
}

// inOrder asks the stages in the order in which they stood when the request came. It
// says whether one of them has taken the request.
func (x *walk) inOrder() (taken bool) {
	s, path := x.snapshot, x.r.URL.Path
	i := s.Table.First(path)
	if x.after != "" {
		at := s.index(x.after)
		if at < 0 { // a process that does not serve in the chain yet, or no longer
			x.stage = x.after
			x.failure(Unavailable, errNoStage)
			x.answerFailure()
			return true
		}
		i = s.Table.Next(path, at)
	}
	for i >= 0 {
		next := s.Table.Next(path, i)
		x.stage, x.more = s.Links[i].Name, next >= 0
		link, there := x.chain.present(s, i)
		if there && x.hop(s, link.Endpoint) {
			return true
		}
		x.asked = append(x.asked, x.stage)
		i = next
	}
	return false
}

var errMoved = errors.New("what serves the path has changed while the request was on its way")

// latecomers asks the stages that have come to the chain, or have claimed the path,
// since the request came: what the stages of then no longer serve may be theirs now,
// and must not be reported as not found.
func (x *walk) latecomers() (taken bool) {
	now := x.chain.state.Load()
	if now == x.snapshot {
		return false
	}
	path, i := x.r.URL.Path, -1
	if x.after != "" {
		if i = now.index(x.after); i < 0 {
			return false
		}
	}
	for i = now.Table.Next(path, i); i >= 0; i = now.Table.Next(path, i) {
		x.stage = now.Links[i].Name
		if slices.Contains(x.asked, x.stage) {
			continue
		}
		if x.consumed {
			x.failure(Unavailable, errMoved)
			x.answerFailure()
			return true
		}
		x.more = true
		if x.hop(now, now.Links[i].Endpoint) {
			return true
		}
	}
	return false
}

// present is stage i of a snapshot as it is now, if the chain still has it.
func (c *Chain) present(s *Snapshot, i int) (Link, bool) {
	now := c.state.Load()
	if now == s {
		return s.Links[i], true
	}
	if i = now.index(s.Links[i].Name); i < 0 {
		return Link{}, false
	}
	return now.Links[i], true
}

// endpoint returns the endpoint that a stage has now, nil if it has none.
func (c *Chain) endpoint(stage string) *Endpoint {
	s := c.state.Load()
	if i := s.index(stage); i >= 0 {
		return s.Links[i].Endpoint
	}
	return nil
}

// maxReplays bounds how often a request is sent again that has provably not been
// delivered, each time to another process. One that may have been is sent again once.
const maxReplays = 5

// hop hands the request to the stage x.stage. It says whether that has taken it, with
// whatever result; if not, it has declined.
func (x *walk) hop(s *Snapshot, e *Endpoint) (taken bool) {
	x.arrive()
	x.chain.flights.set(x.id, flight{stage: x.stage, snapshot: s, r: x.r, called: x.called})
	v := x.try(e, false)
	for n, lost := 0, false; v == failed && x.mayReplay() && n < maxReplays; n++ {
		now := x.chain.endpoint(x.stage)
		if now == nil || x.fail.kind == Lost && lost || x.fail.kind != Lost && n > 0 && now == e {
			break
		}
		lost = lost || x.fail.kind == Lost
		x.observe(e, Replayed)
		x.called.Store(false)
		e = now
		v = x.try(e, true)
	}
	switch v {
	case answered:
		x.observe(e, Served)
	case upgraded:
		x.observe(e, Upgraded)
	case declined:
		x.observe(e, Declined)
		return false
	case gone:
		x.observe(e, GivenUp)
	case broken:
		x.observe(e, Interrupted)
		panic(http.ErrAbortHandler)
	case failed:
		x.observe(e, x.fail.kind.outcome())
		x.answerFailure()
	}
	return true
}

// observe says how the hop ended, or an attempt that another follows.
func (x *exchange) observe(e *Endpoint, o Outcome) {
	h := Hop{Stage: x.stage, Outcome: o}
	if e != nil {
		h.Socket = e.addr.Name
	}
	if o == Served || o == Upgraded {
		h.Status = x.answer.status
	}
	if x.calls(o) {
		h.Outcome = Called
	}
	if x.at != nil && o != Replayed {
		x.at.end(h.Outcome)
	}
	x.chain.config.Observe(h)
}

// calls says whether the hop counts as a call: of the stages that have a request, the
// last one serves it, or the client leaves it in the middle of its answer, and those
// in front of that one have called. What has gone wrong with a stage is told in any case.
func (x *exchange) calls(o Outcome) bool {
	switch o {
	case Served, Upgraded:
	case GivenUp:
		if !x.begun {
			return false
		}
	default:
		return false
	}
	return x.called.Load()
}
