package relay

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// Table reports which stages have a claim on a path. Stages are numbered in chain
// order, from 0; -1 stands for no stage.
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
	ResponseHeader(r *http.Request, from Sender, key, value string)
	// HostResponseHeader reports whether only the host sets the header, whose key is in canonical form, in responses.
	// Those of stages are dropped.
	HostResponseHeader(key string) bool
}

// Sender is the stage that has sent a header for the host.
type Sender struct {
	Stage string
	// Serves reports whether the stage itself serves the request: it has not declined it, nor called the next stage for
	// it.
	Serves bool
	// Kubernetes is that of Stage.
	Kubernetes bool
	// Had is for how long the stage has had the request.
	Had time.Duration
}

// Config is what a chain is made of. All members may be nil.
type Config struct {
	// Dial connects to the Unix socket of a stage; net.Dialer if nil. The connection is a *net.UnixConn, and the error
	// syscall.EAGAIN if the backlog of the socket is full.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
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
	// Watch reports whether the response to a request is a watch, which may end at any time: its client goes on with another.
	// Without it, none is.
	Watch func(*http.Request) bool
	// Watches returns what becomes of the watches of a stage; those of all are resumed if it is nil.
	Watches func(stage string) WatchMode
	// User returns whose request that is, so that one user cannot have all the room of those
	// that wait. It is called for requests that have to wait only.
	User func(*http.Request) string
	// Limited is called when a request fails, or something of its response is left out, because its stage has come to a limit, with
	// more of it where there is more to say; and with LimitStray when a stage has sent more than a response.
	Limited func(stage, limit, reason string)
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
	// From is the stage that has handed the request on, by declining or calling; empty if the host did.
	From string
	// Took is how long the stage has had the request. Streams reports whether this was up to the client: the response
	// is a watch, or the connection was upgraded.
	Took    time.Duration
	Streams bool
	// Resume is set if a watch of a client has left the process.
	Resume Resume
	// Request is set while requests are split, unless a stage has made it; see Split.
	Request *http.Request
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
	// Incomplete reports whether the process has taken another's place and does not know yet all that it serves.
	// Requests for its part of what is merged from several stages, see chain.IsDiscovery, wait: what a document lacks,
	// clients take for gone.
	Incomplete bool
	// Kubernetes reports whether the stage may have paths of the Kubernetes API, and so may say of requests that it
	// serves what Kubernetes' own stages do; see Sender.
	Kubernetes bool
	// DiscardsBodies reports whether the stage has read, or discarded, the body of a request before it reads another
	// one from the connection. Without it, a connection that has carried a body takes no other request.
	DiscardsBodies bool
}

// Split sends a part of the requests another way: to other processes of some stages. What a stage asks for by itself goes the
// way of its process, see Caller.Canary, until all does.
type Split struct {
	Tables Tables
	Stages []Stage
	// Share is how large the part is; 1 is all requests, whatever Includes reports.
	Share float64
	// Includes reports whether a request of a client is of that part. It may be called by any goroutine for as long as the request takes.
	Includes func(*http.Request) bool
	// Spread is the time over which watches end whose side has changed with the share.
	Spread time.Duration
}

// Chain is an http.Handler that relays each request to the stage that owns it.
type Chain struct {
	config   Config
	hold     atomic.Pointer[Limits]
	state    atomic.Pointer[snapshot]
	inFlight inFlight
	draining draining
	watches  watches
	// heads and chunks are what large heads, and the chunks of watches, may hold.
	heads, chunks budgets
	// auditParts is what requests in flight have in their audit events.
	auditParts *auditParts
	// rounds is how often requests have been split. Only Set and SetSplit use it.
	rounds int
	// ended is over after Close.
	ended context.Context
	end   context.CancelFunc
	// maxGiveWay is the constant; tests change it.
	maxGiveWay time.Duration
}

// snapshot is the state of a chain at one time. It does not change.
type snapshot struct {
	tables  Tables
	targets []target
	// incomplete are the endpoints of the stages that do not know yet all that they serve, or nil.
	incomplete map[*endpoint]bool
	// replaced is closed when another snapshot takes its place.
	replaced chan struct{}
	// canary is the chain of the requests that includes has, which are that share; nil if requests are not split.
	canary   *snapshot
	includes func(*http.Request) bool
	share    float64
	// isCanary reports whether it is that of another snapshot.
	isCanary bool
	// round is the number of the split, the same on both sides and for all its shares; 0 if requests are not split.
	round int
}

// side returns the snapshot by which a request goes that comes now.
func (s *snapshot) side(r *http.Request) *snapshot {
	if s == nil || s.canary == nil {
		return s
	}
	included := s.share >= 1
	if !included {
		if call := callFrom(r.Context()); call != nil {
			included = call.canary
		} else {
			included = s.includes(r)
		}
	}
	if included {
		return s.canary
	}
	return s
}

// target is a stage of a snapshot.
type target struct {
	stage string
	// endpoint is nil if the stage cannot be reached.
	endpoint *endpoint
	// kubernetes is Stage.Kubernetes.
	kubernetes bool
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
	if config.System == nil {
		config.System = func(*http.Request) bool { return false }
	}
	if config.Watch == nil {
		config.Watch = func(*http.Request) bool { return false }
	}
	if config.Watches == nil {
		config.Watches = func(string) WatchMode { return ResumeWatches }
	}
	c := &Chain{config: config, maxGiveWay: maxGiveWay, auditParts: newAuditParts()}
	c.heads.stage, c.heads.all, c.heads.wait = bounds.StageHeads, bounds.TotalHeads, bounds.HeadWait
	c.chunks.stage, c.chunks.all, c.chunks.wait = bounds.StageChunks, bounds.TotalChunks, bounds.ChunkWait
	c.ended, c.end = context.WithCancel(context.Background())
	c.watches.lasting.Store(newLasting())
	c.hold.Store(&config.Hold)
	return c
}

// Close ends what the chain does without a request: no watch ends because its side has changed. It is called when requests have ended.
func (c *Chain) Close() { c.end() }

// Set makes stages the chain, in this order and with these tables, for all requests that begin from now on,
// and for those that are sent once more. A stage keeps its connections for as long as it
// has the same socket. Those of a socket that is gone are closed once its requests have
// ended; see AwaitEmpty. Set is called by one goroutine at a time.
func (c *Chain) Set(tables Tables, stages []Stage) { c.set(tables, stages, nil) }

// SetSplit is Set, but for the requests that split has. The stages have the same names on both sides.
func (c *Chain) SetSplit(tables Tables, stages []Stage, split Split) {
	before := c.state.Load()
	c.set(tables, stages, &split)
	if before == nil || before.share != split.Share {
		go c.endMoved(split.Share, split.Spread)
	}
}

func (c *Chain) set(tables Tables, stages []Stage, split *Split) {
	endpoints := map[socketOf]*endpoint{}
	if s := c.state.Load(); s != nil {
		for _, t := range s.all() {
			if t.endpoint != nil {
				endpoints[socketOf{t.stage, t.endpoint.socket}] = t.endpoint
			}
		}
	}
	used := map[*endpoint]bool{}
	s := &snapshot{tables: tables, targets: c.targets(stages, endpoints, used), replaced: make(chan struct{})}
	s.setIncomplete(stages)
	if split != nil {
		if now := c.state.Load(); now == nil || now.canary == nil {
			c.rounds++
		}
		s.canary = &snapshot{tables: split.Tables, targets: c.targets(split.Stages, endpoints, used),
			replaced: s.replaced, isCanary: true, round: c.rounds}
		s.canary.setIncomplete(split.Stages)
		s.includes, s.share, s.round = split.Includes, split.Share, c.rounds
	}
	if before := c.state.Swap(s); before != nil {
		close(before.replaced)
	}
	for _, e := range endpoints {
		if !used[e] {
			c.draining.add(e)
			e.close()
		}
	}
}

// socketOf is the data socket of a stage.
type socketOf struct{ stage, socket string }

// targets takes the endpoints of stages from those that there are, and adds to them what is new.
func (c *Chain) targets(stages []Stage, endpoints map[socketOf]*endpoint, used map[*endpoint]bool) []target {
	targets := make([]target, len(stages))
	for i, st := range stages {
		var e *endpoint
		if st.Socket != "" {
			key := socketOf{st.Name, st.Socket}
			if e = endpoints[key]; e == nil {
				e = c.endpoint(st.Name, st.Socket)
				e.refusal, e.discards = st.Refusal, st.DiscardsBodies
				endpoints[key] = e
			}
			e.setHeld(st.Held)
			used[e] = true
		}
		targets[i] = target{stage: st.Name, endpoint: e, kubernetes: st.Kubernetes}
	}
	return targets
}

// all are the targets of both sides. One that both have comes twice.
func (s *snapshot) all() []target {
	if s.canary == nil {
		return s.targets
	}
	return slices.Concat(s.targets, s.canary.targets)
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
		for _, t := range s.all() {
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
	// Watches are the clients' watches that the stage serves, Resumable those of them that do not end with its process.
	Watches   int `json:"watches"`
	Resumable int `json:"resumableWatches"`
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
		if s.canary != nil {
			if e := s.canary.targets[i].endpoint; e != nil && e != t.endpoint {
				inFlight, waiting := e.load()
				loads[i].InFlight, loads[i].Waiting = loads[i].InFlight+inFlight, loads[i].Waiting+waiting
			}
		}
	}
	c.watches.addTo(loads, c.config.System)
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
		c.staged(call.delegate, staged).ServeHTTP(w, r)
		return
	}
	c.Only(call.delegate).ServeHTTP(w, r)
}

// staged returns a handler for a process of a stage that does not serve in the chain yet.
func (c *Chain) staged(stage string, st Staged) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.snapshot(w, r, ""); s != nil {
			e := c.endpoint(stage, st.Socket)
			defer e.close()
			c.relayTo(w, r, s, target{stage: stage, endpoint: e, kubernetes: st.Kubernetes})
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
	s := c.state.Load().side(r)
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

// present returns what has taken the place of a snapshot: that of the same side, if requests are split still.
func (c *Chain) present(s *snapshot) *snapshot {
	now := c.state.Load()
	if s.isCanary && now.canary != nil {
		return now.canary
	}
	return now
}

// target returns a stage of a snapshot as it is now, if the chain has it.
func (c *Chain) target(s *snapshot, stage string) (target, bool) {
	s = c.present(s)
	if i := s.index(stage); i >= 0 {
		return s.targets[i], true
	}
	return target{}, false
}
