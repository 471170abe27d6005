package relay

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
)

// Table says which stages have a claim on a path. Stages are numbered in chain
// order, from 0; -1 is none.
type Table interface {
	// First returns the first stage with a claim on the path.
	First(path string) int
	// Next returns the first one behind the given stage.
	Next(path string, after int) int
}

// Link is a stage of a [Snapshot].
type Link struct {
	Name string
	// Endpoint is nil as long as the stage cannot be reached. Its requests fail then.
	Endpoint *Endpoint
}

// Snapshot is the state of a chain. It must not change once it is in use.
type Snapshot struct {
	Table Table
	Links []Link
}

func (s *Snapshot) index(stage string) int {
	for i, l := range s.Links {
		if l.Name == stage {
			return i
		}
	}
	return -1
}

// Carrier moves what rides on a request's context across the process boundary. It
// is called on the goroutine of the handler.
type Carrier interface {
	// AppendRequestHeaders appends complete header lines, each as "Key: value\r\n".
	// It is called once per attempt to reach a stage.
	AppendRequestHeaders(dst []byte, r *http.Request) []byte
	// ResponseHeader gets each X-Catena-* header, and trailer, of a stage's answer.
	ResponseHeader(r *http.Request, stage, key, value string)
}

// Config is what a chain is made of. All members may be nil.
type Config struct {
	// NotFound answers what no stage wants; http.NotFound if nil.
	NotFound http.Handler
	// Error answers a request that got no answer from a stage; WriteError if nil.
	// A Canceled request may be one that a filter in front of the chain is just
	// answering because its time is over.
	Error   func(w http.ResponseWriter, r *http.Request, e *StageError)
	Carrier Carrier
	// Observe is called at the end of each attempt to have a stage serve a request.
	Observe func(stage string, outcome Outcome)
}

// Chain is an http.Handler that relays each request to the stage that owns it.
type Chain struct {
	config  Config
	state   atomic.Pointer[Snapshot]
	flights flights
}

// NewChain returns a chain without a stage: until the first Swap, it is Unavailable.
func NewChain(config Config) *Chain {
	if config.NotFound == nil {
		config.NotFound = http.HandlerFunc(http.NotFound)
	}
	if config.Error == nil {
		config.Error = WriteError
	}
	if config.Observe == nil {
		config.Observe = func(string, Outcome) {}
	}
	return &Chain{config: config}
}

// Swap replaces the state of the chain for all requests that begin from now on,
// and for those that are sent once more. It returns the previous one, nil at first.
func (c *Chain) Swap(s *Snapshot) *Snapshot { return c.state.Swap(s) }

// ServeHTTP implements http.Handler for the whole chain.
func (c *Chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := c.snapshot(w, r, ""); s != nil {
		c.relay(w, r, s, s.Table.First(r.URL.Path), false)
	}
}

// After returns a handler for what is behind a stage.
func (c *Chain) After(stage string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.snapshot(w, r, stage); s != nil {
			c.relay(w, r, s, s.Table.Next(r.URL.Path, s.index(stage)), false)
		}
	})
}

// Only returns a handler for one stage, whatever it claims.
func (c *Chain) Only(stage string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.snapshot(w, r, stage); s != nil {
			c.relay(w, r, s, s.index(stage), true)
		}
	})
}

// Behind says whether stage is behind the other in the chain.
func (c *Chain) Behind(stage, other string) bool {
	s := c.state.Load()
	if s == nil {
		return false
	}
	i := s.index(other)
	return i >= 0 && s.index(stage) > i
}

var (
	errNoChain = errors.New("the chain has not been built yet")
	errNoStage = errors.New("it is not in the chain")
	errDown    = errors.New("it is not running")
)

// snapshot returns the state of the chain if the named stage is in it; if not, it
// answers the request and returns nil.
func (c *Chain) snapshot(w http.ResponseWriter, r *http.Request, stage string) *Snapshot {
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

// relay hands the request to stage i, and to those behind it while they decline,
// unless only is set.
func (c *Chain) relay(w http.ResponseWriter, r *http.Request, s *Snapshot, i int, only bool) {
	x := newExchange(c, w, r)
	defer x.release()
	for i >= 0 {
		next := -1
		if !only {
			next = s.Table.Next(r.URL.Path, i)
		}
		x.more = next >= 0
		if !x.hop(s, i) {
			return
		}
		i = next
	}
	x.leave()
	c.config.NotFound.ServeHTTP(w, r)
}

// hop hands the request to one stage. It says whether the stage has declined.
func (x *exchange) hop(s *Snapshot, i int) (declinedIt bool) {
	x.stage = s.Links[i].Name
	x.chain.flights.set(x.id, x.stage, x.r)
	observe := x.chain.config.Observe
	v := x.try(s.Links[i].Endpoint, false)
	if v == failed && x.mayReplay() {
		if e := x.chain.endpoint(x.stage); e != nil {
			observe(x.stage, Replayed)
			v = x.try(e, true)
		}
	}
	switch v {
	case answered:
		observe(x.stage, Served)
	case upgraded:
		observe(x.stage, Upgraded)
	case declined:
		observe(x.stage, Declined)
		return true
	case gone:
		observe(x.stage, GivenUp)
	case broken:
		observe(x.stage, Interrupted)
		panic(http.ErrAbortHandler)
	case failed:
		observe(x.stage, x.fail.kind.outcome())
		x.answerFailure()
	}
	return false
}

func (x *exchange) try(e *Endpoint, redial bool) verdict {
	if e == nil {
		return x.failure(Unavailable, errDown)
	}
	return x.attempt(e, redial)
}

// endpoint returns the endpoint that a stage has now, nil if it has none.
func (c *Chain) endpoint(stage string) *Endpoint {
	s := c.state.Load()
	if i := s.index(stage); i >= 0 {
		return s.Links[i].Endpoint
	}
	return nil
}

// mayReplay says whether a request that got no answer can be sent once more.
func (x *exchange) mayReplay() bool {
	switch {
	case x.begun || x.fail.touched:
		return false
	case x.fail.kind == Unavailable:
		return true
	default:
		return x.fail.kind == Lost && safe(x.r)
	}
}

// safe says whether executing the request twice is the same as once. An upgrade
// may be anything, such as a command in a container.
func safe(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return upgradeOf(r) == ""
	}
	return false
}

func (x *exchange) answerFailure() {
	if x.begun { // with an informational answer
		if errors.Is(x.r.Context().Err(), context.Canceled) {
			return
		}
		panic(http.ErrAbortHandler)
	}
	x.leave()
	kind := x.fail.kind
	if kind == Lost && safe(x.r) {
		kind = Unavailable
	}
	x.chain.config.Error(x.w, x.r, &StageError{Kind: kind, Stage: x.stage, Err: x.fail.err})
}
