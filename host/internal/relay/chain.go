package relay

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Table reports which stages have a claim on a path. Stages are numbered in chain
// order, from 0; -1 is none.
type Table interface {
	// First returns the first stage with a claim on the path.
	First(path string) int
	// Next returns the first one downstream of the given stage.
	Next(path string, after int) int
}

// Tables are the tables of a chain.
type Tables struct {
	All Table
	// System is for requests of which Config.System reports true; nil if it is All. Stages
	// that may not have these requests are missing in it.
	System Table
}

// Propagator moves what rides on a request's context across the process boundary. It
// is called on the goroutine of the handler.
type Propagator interface {
	// AppendRequestHeaders appends complete header lines, each as "Key: value\r\n".
	// It is called once per attempt to reach a stage.
	AppendRequestHeaders(dst []byte, r *http.Request) []byte
	// HostHeader reports whether the host itself sets the header, whose key is in canonical
	// form, in requests. A client cannot remove such a header by naming it in Connection.
	HostHeader(key string) bool
	// ResponseHeader takes each X-Catena-* header, and trailer, of a stage's response.
	ResponseHeader(r *http.Request, stage, key, value string)
}

// Config is what a chain is made of. All members may be nil.
type Config struct {
	// NotFound serves requests that no stage serves; http.NotFound if nil.
	NotFound http.Handler
	// Error responds to a request that got no response from a stage; WriteError if nil.
	// A Canceled request may be one to which a filter upstream of the chain is just
	// responding because its deadline has passed. Error may wait for that filter: the
	// request has no connection to a stage any more, and does not count as in flight.
	Error      func(w http.ResponseWriter, r *http.Request, e *StageError)
	Propagator Propagator
	// System reports whether a request is made by the host itself, or by a stage in its name.
	System func(*http.Request) bool
	// Observe is called at the end of each attempt to have a stage serve a request.
	Observe func(Hop)
	// User returns whose request that is, so that one user cannot have all the room of those
	// that wait. It is called for requests that have to wait only.
	User func(*http.Request) string
	// Limited is called when a request fails because its stage has come to a limit.
	Limited func(stage, limit string)
	// Hold bounds the requests that wait for each stage; see SetHold.
	Hold Limits
}

// Hop is how one attempt to have a stage serve a request ended.
type Hop struct {
	Stage string
	// Socket is that of the process; empty if the stage had none.
	Socket  string
	Outcome Outcome
	// Status is that of the stage's response; 0 if there was none.
	Status int
}

// Failed reports whether the stage has not done its work: it responded with a status of
// 500 or more, or not at all.
func (h Hop) Failed() bool {
	switch h.Outcome {
	case Served, Called, Upgraded:
		return h.Status >= http.StatusInternalServerError
	case NotReached, NoResponse, Malformed, Interrupted:
		return true
	}
	return false
}

// Stage is a stage as Set takes it.
type Stage struct {
	Name string
	// Socket is that of its process; empty if it cannot be reached. Its requests fail then.
	Socket string
	// Refusal is the value of header.Undelivered in the host's own responses to requests
	// that no process has accepted from the socket. Only these may be sent again, so no
	// stage can know it. There are no such responses if it is empty.
	Refusal string
	// Held makes requests wait, because another process is about to start on the same
	// socket.
	Held bool
}

// Chain is an http.Handler that relays each request to the stage that owns it.
type Chain struct {
	config   Config
	hold     atomic.Pointer[Limits]
	state    atomic.Pointer[snapshot]
	inFlight inFlight
	draining draining
	heads    heads
	// maxGiveWay is the constant; tests change it.
	maxGiveWay time.Duration
}

// snapshot is the state of a chain at one time. It does not change.
type snapshot struct {
	tables  Tables
	targets []target
	// replaced is closed when another snapshot takes its place.
	replaced chan struct{}
}

// target is a stage of a snapshot.
type target struct {
	stage string
	// endpoint is nil if the stage cannot be reached.
	endpoint *endpoint
}

func (s *snapshot) index(stage string) int {
	for i, t := range s.targets {
		if t.stage == stage {
			return i
		}
	}
	return -1
}

// NewChain returns a chain without a stage: until the first Set, it is Unavailable.
func NewChain(config Config) *Chain {
	if config.NotFound == nil {
		config.NotFound = http.HandlerFunc(http.NotFound)
	}
	if config.Error == nil {
		config.Error = WriteError
	}
	if config.Observe == nil {
		config.Observe = func(Hop) {}
	}
	c := &Chain{config: config, maxGiveWay: maxGiveWay}
	c.hold.Store(&config.Hold)
	return c
}

// Set makes stages the chain, in this order and with these tables, for all requests that begin from now on,
// and for those that are sent once more. A stage keeps its connections for as long as it
// has the same socket. Those of a socket that is gone are closed once its requests have
// ended; see AwaitEmpty. Set is called by one goroutine at a time.
func (c *Chain) Set(tables Tables, stages []Stage) {
	old := map[string]*endpoint{}
	if s := c.state.Load(); s != nil {
		for _, t := range s.targets {
			if t.endpoint != nil {
				old[t.stage] = t.endpoint
			}
		}
	}
	s := &snapshot{tables: tables, targets: make([]target, len(stages)), replaced: make(chan struct{})}
	for i, st := range stages {
		e := old[st.Name]
		switch {
		case st.Socket == "":
			e = nil
		case e == nil || e.socket != st.Socket:
			e = c.endpoint(st.Name, st.Socket)
			e.refusal = st.Refusal
		default:
			delete(old, st.Name)
		}
		if e != nil {
			e.setHeld(st.Held)
		}
		s.targets[i] = target{stage: st.Name, endpoint: e}
	}
	if before := c.state.Swap(s); before != nil {
		close(before.replaced)
	}
	for _, e := range old {
		c.draining.add(e)
		e.close()
	}
}

// AwaitEmpty returns when no request is left at a socket that Set has taken out of the
// chain, or with ctx's error. Only then may its process end: a request may be on its way
// to a process that has none.
func (c *Chain) AwaitEmpty(ctx context.Context, socket string) error {
	if e := c.draining.get(socket); e != nil {
		return e.wait(ctx)
	}
	return nil
}

// SetHold changes the bounds of the requests that wait for each stage. Those that wait
// already continue to.
func (c *Chain) SetHold(limits Limits) {
	c.hold.Store(&limits)
	if s := c.state.Load(); s != nil {
		for _, t := range s.targets {
			if t.endpoint != nil {
				t.endpoint.setLimits(limits)
			}
		}
	}
}

// Load is the number of requests of a stage.
type Load struct {
	Stage string `json:"stage"`
	// InFlight are the requests that are with the stage, Waiting those that wait for it.
	InFlight int `json:"inFlight"`
	Waiting  int `json:"waiting"`
}

// Loads returns the load of each stage of the chain, from head to tail.
func (c *Chain) Loads() []Load {
	s := c.state.Load()
	if s == nil {
		return nil
	}
	loads := make([]Load, len(s.targets))
	for i, t := range s.targets {
		loads[i].Stage = t.stage
		if t.endpoint != nil {
			loads[i].InFlight, loads[i].Waiting = t.endpoint.load()
		}
	}
	return loads
}

// ServeHTTP implements http.Handler for the whole chain, or for the one stage that a
// stage calls.
func (c *Chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if call := callFrom(r.Context()); call != nil && call.delegate != "" {
		c.serveDelegate(w, r, call)
		return
	}
	if s := c.snapshot(w, r, ""); s != nil {
		c.relayAfter(w, r, s, "")
	}
}

// Only returns a handler for one stage, whatever it claims.
func (c *Chain) Only(stage string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.snapshot(w, r, stage); s != nil {
			c.relayTo(w, r, s, s.targets[s.index(stage)])
		}
	})
}

// serveDelegate relays to the stage that a stage calls.
func (c *Chain) serveDelegate(w http.ResponseWriter, r *http.Request, call *call) {
	if staged := call.staged[call.delegate]; staged.Socket != "" {
		c.staged(call.delegate, staged.Socket).ServeHTTP(w, r)
		return
	}
	c.Only(call.delegate).ServeHTTP(w, r)
}

// staged returns a handler for a process of a stage that does not serve in the chain yet.
func (c *Chain) staged(stage, socket string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.snapshot(w, r, ""); s != nil {
			e := c.endpoint(stage, socket)
			defer e.close()
			c.relayTo(w, r, s, target{stage: stage, endpoint: e})
		}
	})
}

var (
	errNoChain = errors.New("the chain has not been built yet")
	errNoStage = errors.New("it is not in the chain")
	errDown    = errors.New("it is not running")
)

// snapshot returns the state of the chain if the named stage is in it; if not, it
// responds to the request and returns nil.
func (c *Chain) snapshot(w http.ResponseWriter, r *http.Request, stage string) *snapshot {
	s := c.state.Load()
	err := errNoChain
	if s != nil {
		if stage == "" || s.index(stage) >= 0 {
			return s
		}
		err = errNoStage
	}
	c.config.Error(w, r, &StageError{Kind: Unavailable, Stage: stage, Err: err})
	return nil
}

// target returns a stage as it is now, if the chain has it.
func (c *Chain) target(stage string) (target, bool) {
	s := c.state.Load()
	if i := s.index(stage); i >= 0 {
		return s.targets[i], true
	}
	return target{}, false
}
