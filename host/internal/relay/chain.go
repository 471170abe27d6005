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
	Observe func(Hop)
	// Hold bounds the requests that wait for each stage; see SetHold.
	Hold Limits
}

// Hop is how one attempt to have a stage serve a request ended.
type Hop struct {
	Stage string
	// Socket is that of the process; empty if the stage had none.
	Socket  string
	Outcome Outcome
	// Status is that of the stage's answer; 0 if there was none.
	Status int
}

// Failed says that the stage has not done its work: it answered with a status of 500
// or more, or not at all.
func (h Hop) Failed() bool {
	switch h.Outcome {
	case Served, Called, Upgraded:
		return h.Status >= http.StatusInternalServerError
	case NotReached, NoAnswer, Malformed, Interrupted:
		return true
	}
	return false
}

// Chain is an http.Handler that relays each request to the stage that owns it.
type Chain struct {
	config  Config
	hold    atomic.Pointer[Limits]
	state   atomic.Pointer[Snapshot]
	flights flights
	leaving leaving
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
		config.Observe = func(Hop) {}
	}
	c := &Chain{config: config}
	c.hold.Store(&config.Hold)
	return c
}

// SetHold changes what bounds the requests that wait for each stage. Those that wait
// go on to.
func (c *Chain) SetHold(limits Limits) {
	c.hold.Store(&limits)
	if s := c.state.Load(); s != nil {
		for _, l := range s.Links {
			if l.Endpoint != nil {
				l.Endpoint.setLimits(limits)
			}
		}
	}
}

// Swap replaces the state of the chain for all requests that begin from now on,
// and for those that are sent once more. It returns the previous one, nil at first.
func (c *Chain) Swap(s *Snapshot) *Snapshot { return c.state.Swap(s) }

// ServeHTTP implements http.Handler for the whole chain.
func (c *Chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := c.snapshot(w, r, ""); s != nil {
		c.relayAfter(w, r, s, "")
	}
}

// Only returns a handler for one stage, whatever it claims.
func (c *Chain) Only(stage string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.snapshot(w, r, stage); s != nil {
			c.relayTo(w, r, s, stage, s.Links[s.index(stage)].Endpoint)
		}
	})
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

func (x *exchange) try(e *Endpoint, redial bool) verdict {
	if e == nil {
		return x.failure(Unavailable, errDown)
	}
	return x.attempt(e, redial)
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
