package relay

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// relayAfter hands the request to the stages downstream of one, or to all if after is
// empty, until one does not decline.
func (c *Chain) relayAfter(w http.ResponseWriter, r *http.Request, s *snapshot, after string) {
	x := newRequest(c, w, r, s)
	defer x.release()
	x.after = after
	x.beyondMissing = x.stagedMayServe()
	if !x.askSnapshot() && !x.askAdded() && !x.askStaged() {
		x.notFound()
	}
}

// relayTo hands the request to one stage alone.
func (c *Chain) relayTo(w http.ResponseWriter, r *http.Request, s *snapshot, to target) {
	x := newRequest(c, w, r, s)
	defer x.release()
	x.alone = true
	if !x.hop(s, to) {
		x.notFound()
	}
}

func (x *request) notFound() {
	x.leaveStage()
	x.chain.config.NotFound.ServeHTTP(x.w, x.r)
}

// askSnapshot asks the stages in the order which they had when the request came. A stage
// that has been removed since is skipped. It reports whether one has taken the request.
func (x *request) askSnapshot() (taken bool) {
	s, path := x.snapshot, x.r.URL.Path
	table := x.table(s)
	i := table.First(path)
	if x.after != "" {
		at := s.index(x.after)
		if at < 0 { // a process that does not serve in the chain yet, or no longer
			x.stage = x.after
			x.fail(Unavailable, errNoStage)
			x.respondFailure()
			return true
		}
		i = table.Next(path, at)
	}
	for i >= 0 {
		next := table.Next(path, i)
		x.more = next >= 0
		to, ok := s.targets[i], true
		if x.chain.present(s) != s {
			to, ok = x.chain.target(s, to.stage)
		}
		if ok && x.hop(s, to) {
			return true
		}
		x.asked = append(x.asked, s.targets[i].stage)
		i = next
	}
	return false
}

// table is the one of a snapshot by which the request goes.
func (x *request) table(s *snapshot) Table {
	if s.tables.System != nil && x.chain.config.System(x.r) {
		return s.tables.System
	}
	return s.tables.All
}

var errMoved = errors.New("what serves the path has changed while the request was on its way")

// askAdded asks the stages that were added to the chain, or have claimed the path, since
// the request came: a path that the stages of then no longer serve may be served by these
// now, and must not be reported as not found.
func (x *request) askAdded() (taken bool) {
	now := x.chain.present(x.snapshot)
	if now == x.snapshot {
		return false
	}
	path, i := x.r.URL.Path, -1
	if x.after != "" {
		if i = now.index(x.after); i < 0 {
			return false
		}
	}
	table := x.table(now)
	for i = table.Next(path, i); i >= 0; i = table.Next(path, i) {
		if slices.Contains(x.asked, now.targets[i].stage) {
			continue
		}
		if x.consumed {
			x.stage = now.targets[i].stage
			x.fail(Unavailable, errMoved)
			x.respondFailure()
			return true
		}
		x.more = true
		if x.hop(now, now.targets[i]) {
			return true
		}
	}
	return false
}

// askStaged asks the processes that are about to serve in the chain, if the request is from one
// which is brought up together with them: its own API may be among what it needs before it
// is ready.
func (x *request) askStaged() (taken bool) {
	call := callFrom(x.r.Context())
	if call == nil {
		return false
	}
	x.beyondMissing = false
	staged := call.staged
	for _, stage := range slices.Sorted(maps.Keys(staged)) {
		st := staged[stage]
		if !st.covers(x.r.URL.Path) || x.consumed {
			continue
		}
		e := x.chain.endpoint(stage, st.Socket)
		defer e.close()
		if x.hop(x.snapshot, target{stage: stage, endpoint: e, kubernetes: st.Kubernetes}) {
			return true
		}
	}
	return false
}

// stagedMayServe reports whether askStaged may find what the chain does not: a resource of another release. Only reads are
// asked for twice.
func (x *request) stagedMayServe() bool {
	call := callFrom(x.r.Context())
	if call == nil || x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		return false
	}
	for _, st := range call.staged {
		if st.OtherAPI && st.covers(x.r.URL.Path) {
			return true
		}
	}
	return false
}

// maxReplays bounds how often a request is sent again that has provably not been
// delivered, each time to another process. One that may have been is sent again once.
const maxReplays = 5

// hop hands the request to a stage. It reports whether the stage has taken it, with
// whatever result; if not, the stage has declined.
func (x *request) hop(s *snapshot, to target) (taken bool) {
	x.beginHop(s, to)
	e := to.endpoint
	v := x.try(e, false)
	for n, lost, received := 0, false, 0; v == failed && x.mayReplay() && n < maxReplays; n++ {
		now, _ := x.chain.target(x.snapshot, x.stage)
		// A process that another has replaced may break off what it has not responded to.
		moved := now.endpoint != nil && now.endpoint != e
		isLost := x.failure.kind == Lost && !moved
		if isLost && !errors.Is(x.failure.err, syscall.ECONNRESET) { // which means that it was not read
			received++
		}
		if received == 2 {
			x.failure.kind = LostTwice
		}
		tooEarly := errors.Is(x.failure.err, ErrIncomplete)
		if now.endpoint == nil || isLost && lost || !isLost && !moved && !tooEarly && n > 0 {
			break
		}
		lost = lost || isLost
		x.observe(e, Replayed)
		e = now.endpoint
		x.chain.inFlight.set(x.id, requestAt(e, x, s))
		v = x.try(e, true)
	}
	switch v {
	case responded:
		x.observe(x.endpoint, Served) // which may be that of another leg
	case upgraded:
		x.observe(e, Upgraded)
	case declined:
		x.observe(e, Declined)
		return false
	case clientGone:
		x.observe(x.endpoint, GivenUp)
	case broken:
		x.observe(x.endpoint, Interrupted)
		x.giveWay(x.endpoint)
		if !x.response.Chunked || !x.chain.config.Watch(x.r) {
			panic(http.ErrAbortHandler)
		}
	case failed:
		x.observe(e, kinds[x.failure.kind].outcome)
		x.limited(x.failure.err)
		x.respondFailure()
	}
	return true
}

// beginHop records that the stage gets the request.
func (x *request) beginHop(s *snapshot, to target) {
	x.stage, x.kubernetes, x.logged, x.role, x.began = to.stage, to.kubernetes, nil, &x.mark, time.Now()
	x.split = s.round > 0 && callFrom(x.r.Context()) == nil
	if l, ok := x.r.Context().Value(hopLogKey{}).(*HopLog); ok {
		x.logged = l.begin(x.stage)
		x.role = &x.logged.role
	}
	x.chain.inFlight.set(x.id, requestAt(to.endpoint, x, s))
}

func (x *request) try(e *endpoint, redial bool) verdict {
	if e == nil {
		return x.fail(Unavailable, errDown)
	}
	if err := x.chain.awaitComplete(x.r, x.snapshot, e); err != nil {
		return x.fail(Unavailable, err)
	}
	return x.attempt(e, redial)
}

// mayReplay reports whether a request that got no response can be sent once more.
func (x *request) mayReplay() bool {
	switch {
	case x.begun || x.failure.touched || x.role.hasWritten() || errors.Is(x.failure.err, errStaysIncomplete):
		return false
	case x.failure.kind == Unavailable:
		return true
	default:
		return x.failure.kind == Lost && safe(x.r)
	}
}

// safe reports whether executing the request twice is the same as once. An upgrade
// may be anything, such as a command in a container.
func safe(r *http.Request) bool { return safeMethod(r.Method) && h1.UpgradeOf(r) == "" }

// observe reports how the hop ended, or an attempt that another follows.
func (x *request) observe(e *endpoint, o Outcome) {
	h := Hop{Stage: x.stage, Outcome: o, From: x.from(), Took: time.Since(x.began)}
	h.Streams = o == Upgraded || x.chain.config.Watch(x.r)
	if x.split {
		h.Request = x.r
	}
	if e != nil {
		h.Socket = e.socket
	}
	if o == Served || o == Upgraded {
		h.Status = x.response.Status
	}
	// Of the stages that have a request, the last one serves it, or the client leaves it
	// in the middle of its response, and those upstream of that one have called.
	if (o == Served || o == Upgraded || o == GivenUp && x.begun) && x.role.hasCalled() {
		h.Outcome = Called
	}
	if x.watch != nil && x.watch.resume.Result != "" && !x.chain.config.System(x.r) {
		h.Resume, x.watch.resume.Result = x.watch.resume, ""
	}
	if x.logged != nil && o != Replayed && o != Resumed {
		x.logged.end(h.Outcome)
	}
	x.chain.config.Observe(h)
}

// from is the stage that has handed the request on to the present one; empty if the host did.
func (x *request) from() string {
	if n := len(x.asked); n > 0 {
		return x.asked[n-1]
	}
	if call := callFrom(x.r.Context()); call != nil && call.delegate != "" {
		return call.caller
	}
	return x.after
}

// respondFailure responds to a request that got no response from its stage.
func (x *request) respondFailure() {
	if x.begun { // with an informational response
		if errors.Is(x.r.Context().Err(), context.Canceled) {
			return
		}
		panic(http.ErrAbortHandler)
	}
	x.leaveStage()
	kind := x.failure.kind
	if kind == Lost && safe(x.r) {
		kind = Unavailable
	}
	x.chain.config.Error(x.w, x.r, &StageError{Kind: kind, Stage: x.stage, Err: x.failure.err})
}
