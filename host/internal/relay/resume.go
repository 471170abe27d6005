package relay

import (
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay/h1"
	"github.com/catena-dev/catena/internal/frames"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// watch is a watch of a client. Where its stage promises that (see header.Watch), it outlives the process that serves
// it: when that drains or dies, or another takes its part of the requests, the one that is there then responds to the
// same request with what follows the last event that the client has got. Each response is a leg of the watch. Without
// the promise, the first is the only one.
//
// It is the sink of the legs: the client gets whole events, each once and in the order of their revisions.
type watch struct {
	x     *request
	query watchQuery
	began time.Time
	// lasting ends when it is to end with its process.
	lasting *lasting
	// contentType is that of all legs; empty if events are not told apart.
	contentType string
	events      frames.Splitter
	// asked reports whether the stage is asked to let the host tell events apart, promised that another process can go
	// on, and compresses that the client gets events in gzip.
	asked, promised, compresses bool
	// member is the one of the client's gzip that has begun; nil if none has.
	member *gzip.Writer
	// room is what the beginning of an event has taken of the endpoint's chunks.
	room int64

	// position is the revision up to which the client has everything; 0 is not known.
	position uint64
	// from is the position at which the present leg begins; 0 for the first. Overlap is of what it repeats before that;
	// nil if nothing is compared.
	from    uint64
	overlap *overlap
	// initial reports whether the events are of the objects that there are, in any order. InitialEnd is when that was
	// over, until another event comes.
	initial    bool
	initialEnd time.Time
	// unordered reports whether there is no position any more: the stage has sent what has none, or in another order.
	unordered bool
	// drained reports whether the stage has ended the leg because it drains.
	drained bool
	// resume is of the latest leg that has ended, and has a result until that is reported.
	resume Resume
	// pause is that before the next leg.
	pause time.Duration
}

// newWatch returns the watch of a request, as it came from a client, or as a stage hands it on; nil if it is for none.
func newWatch(x *request) *watch {
	if !x.chain.config.Watch(x.r) || h1.UpgradeOf(x.r) != "" || callFrom(x.r.Context()) != nil {
		return nil
	}
	w := &watch{x: x, began: time.Now(), lasting: x.chain.watches.lasting.Load()}
	if x.r.Method == http.MethodGet && !hasBody(x.r) {
		w.query = parseWatchQuery(x.r.URL.RawQuery)
	}
	w.position, w.initial = w.query.revision, w.query.initial
	if w.initial {
		w.position = 0
	}
	return w
}

// request is what goes to a stage: for what follows the position, after the first leg.
func (w *watch) request() *http.Request {
	if w.from == 0 {
		return w.x.r
	}
	r, u := *w.x.r, *w.x.r.URL
	u.RawQuery = w.query.after(w.overlap.begin(w.from), time.Since(w.began))
	r.URL = &u
	return &r
}

// asks reports whether the stage is asked for what the host can tell apart.
func (w *watch) asks() bool {
	mode := w.x.chain.config.Watches(w.x.stage)
	if mode == VerifyWatches && w.overlap == nil {
		w.overlap = &overlap{}
	}
	w.asked = w.query.plain && mode != PassThroughWatches
	return w.asked
}

// errWatchOver ends a watch with which no process goes on.
var errWatchOver = errors.New("no process goes on with the watch")

// begin prepares for the response, whose head is about to go to the client.
func (w *watch) begin() {
	resp := &w.x.response
	if !w.asked || resp.Watch == "" || resp.Status != http.StatusOK || fieldOf(resp, "Content-Encoding") != "" {
		return
	}
	contentType := fieldOf(resp, "Content-Type")
	w.events = frames.Splitter{Encoding: frames.EncodingOf(contentType), Max: bounds.WatchEvent}
	if w.events.Encoding == frames.None {
		return
	}
	w.contentType = strings.Clone(contentType) // and not the whole head
	w.promised = resumable(resp)
	if w.compresses = resp.Watch == header.WatchGzip; w.compresses {
		w.x.w.Header().Set("Content-Encoding", "gzip")
		w.x.w.Header().Add("Vary", "Accept-Encoding")
	}
}

// isTold reports whether events are told apart.
func (w *watch) isTold() bool { return w.contentType != "" }

// resumable reports whether a stage promises that another process can go on with what it sends.
func resumable(resp *h1.Response) bool {
	return resp.Watch == header.WatchResumable || resp.Watch == header.WatchGzip
}

// copy passes on the body of the response, and of those of other processes that go on with it.
func (w *watch) copy() error {
	defer w.awaitFirstSecond()
	defer w.settle(0)
	defer w.endMember()
	var sink h1.Sink = w.x
	if w.isTold() {
		sink = w
	}
	for {
		cause, err := w.left(w.copyLeg(sink))
		if cause == "" {
			return err
		}
		w.resume.Cause = cause
		if result := w.goOn(); result != WatchResumed {
			w.resume.Result = result
			return err
		}
	}
}

// left takes the watch from the process of a leg that has ended, and returns why it has: nothing if that is for the
// client to know. The error is that with which the watch ends if it does.
func (w *watch) left(err error) (ResumeCause, error) {
	x := w.x
	w.drained = w.drained && err == nil
	switch {
	case errors.Is(err, errClientGone), x.r.Context().Err() != nil, err == nil && !w.drained:
		return "", err
	case errors.Is(err, errWatchOver):
		if w.resume.Result = Expired; w.resume.Difference != "" {
			w.resume.Result = Differs
		}
		return "", err
	case err == nil:
		x.keep()
		return Drained, errWatchOver
	case errors.Is(err, h1.ErrCutOff):
		x.drop()
		return Moved, err
	}
	x.drop()
	return Broken, err
}

// leastWatch is a second, and some time for the way to the client.
const leastWatch = 1500 * time.Millisecond

// awaitFirstSecond keeps a watch from ending in its first second without an event, or in the first one after its initial
// events: client-go takes that for a failure, and lists all objects anew (VeryShortWatchError of
// k8s.io/client-go/tools/cache).
func (w *watch) awaitFirstSecond() {
	from := w.began
	switch {
	case w.x.response.Status != http.StatusOK:
		return
	case !w.initialEnd.IsZero():
		from = w.initialEnd
	case w.x.sent.written > 0 && w.query.initial && w.query.bookmarks && !w.isTold():
		from = time.Now() // a bookmark may just have ended them
	case w.x.sent.written > 0:
		return
	}
	wait(w.x.r.Context(), nil, time.Until(from.Add(leastWatch)))
}

func fieldOf(resp *h1.Response, key string) string {
	for _, f := range resp.Fields {
		if f.Key == key {
			return f.Value
		}
	}
	return ""
}

func (w *watch) copyLeg(sink h1.Sink) error {
	x := w.x
	w.drained = false
	if x.after == "" { // what a stage hands on moves with what it has
		x.chain.addWatch(x.id, openWatch{
			r: x.r, stage: x.stage, resumable: w.promised, conn: x.conn,
			canary: x.snapshot.isCanary, round: x.snapshot.round,
		})
		defer x.chain.watches.remove(x.id)
	}
	if x.r.ProtoMajor == 1 { // no other version has chunks
		x.response.Whole = x.endpoint.chunks
	}
	return x.conn.CopyBody(x.r.Context(), sink, &x.response)
}

const (
	// goOnTime is how long a watch waits for a process that goes on with it: as long as requests wait, by default.
	goOnTime = 10 * time.Second
	// leastPause and mostPause are those between legs that break off soon, and between attempts to begin one.
	leastPause, mostPause = 10 * time.Millisecond, time.Second
)

// goOn begins the next leg.
func (w *watch) goOn() ResumeResult {
	x, before := w.x, w.x.endpoint
	switch {
	case w.lasting.Err() != nil:
		return NotWanted
	case !w.promised:
		return NotPromised
	case w.position == 0 || w.initial || w.unordered:
		return NoPosition
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), goOnTime)
	defer cancel()
	defer context.AfterFunc(w.lasting, cancel)()
	w.from = w.position
	w.events = frames.Splitter{Encoding: w.events.Encoding, Max: w.events.Max} // without the beginning of an event
	w.settle(0)
	if time.Since(x.began) > mostPause {
		w.pause = 0
	}
	for left := before; ; left = nil {
		if w.pause > 0 {
			wait(ctx, nil, w.pause)
		}
		next := w.next(ctx, left)
		if next == nil {
			return w.withoutProcess()
		}
		err := w.ask(ctx, next)
		if w.resume.Cause == Broken || err != nil {
			w.pause = min(max(2*w.pause, leastPause), mostPause)
		}
		switch {
		case err == nil:
			w.resume.Result = WatchResumed
			x.observe(before, w.outcome())
			x.began = time.Now()
			return WatchResumed
		case errors.Is(err, errOtherWatch):
			return OtherWatch
		}
	}
}

// outcome is that of the hop to the process that the watch has left, if another goes on with it.
func (w *watch) outcome() Outcome {
	if w.resume.Cause == Broken {
		return Interrupted
	}
	return Resumed
}

// withoutProcess is why there is no process to go on with the watch; nothing if its client has gone.
func (w *watch) withoutProcess() ResumeResult {
	switch {
	case w.x.r.Context().Err() != nil:
		return ""
	case w.lasting.Err() != nil:
		return NotWanted
	case w.isOver():
		return TimeOver
	}
	return NoProcess
}

// isOver reports whether the time is over that the client has given the watch.
func (w *watch) isOver() bool { return w.query.timeout > 0 && time.Since(w.began) >= w.query.timeout }

// next waits for the process to which the watch would go if it began now, and returns it, or nil. Left is
// the one that the watch was with, if it is not known to be there still: it is given a moment to be replaced.
func (w *watch) next(ctx context.Context, left *endpoint) *endpoint {
	x, waited := w.x, false
	for ctx.Err() == nil {
		s := x.chain.state.Load().side(x.r)
		i := s.index(x.stage)
		if i < 0 || w.isOver() {
			return nil
		}
		e := s.targets[i].endpoint
		if e == nil {
			wait(ctx, s.replaced, goOnTime)
			continue
		}
		gate := e.waitsFor()
		switch {
		case gate != nil:
			wait(ctx, gate, goOnTime)
		case left != nil && e.socket == left.socket && !waited:
			wait(ctx, s.replaced, x.chain.maxGiveWay)
			waited = true
		case left != nil && e.socket == left.socket && w.drained:
			return nil // it stays
		default:
			x.snapshot = s
			return e
		}
	}
	return nil
}

// wait waits for an event, which may be nil, but no longer than that.
func wait(ctx context.Context, event <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-event:
	case <-timer.C:
	case <-ctx.Done():
	}
}

var errOtherWatch = errors.New("its response is not what follows")

// ask has a process respond with the next leg. It does not wait in the queue of the requests for the stage: it has a
// client already, and nothing else to hold.
func (w *watch) ask(ctx context.Context, e *endpoint) error {
	x := w.x
	asking := x.chain.watches.ask(x.stage)
	if err := asking.Acquire(ctx, 1); err != nil {
		return err
	}
	defer asking.Release(1)
	x.message = messages.Get().(*message)
	defer x.releaseMessage()
	if err := x.prepare(); err != nil {
		return err
	}
	if _, err := e.begin(true); err != nil {
		return err
	}
	c, err := e.connect(ctx)
	if err != nil {
		e.put(nil, false)
		return err
	}
	unwatch := context.AfterFunc(x.r.Context(), c.Abort)
	inTime := context.AfterFunc(ctx, c.Abort)
	x.chain.inFlight.set(x.id, requestAt(e, x, x.snapshot))
	var head h1.Response
	if _, err = c.Send(x.message.out); err == nil {
		err = c.ReadResponse(ctx, &head)
	}
	switch {
	case !inTime() && err == nil:
		err = ctx.Err()
	case err != nil && x.r.Context().Err() == nil:
		x.observe(e, NoResponse)
	case err != nil:
	case head.Status == http.StatusServiceUnavailable || head.Status == http.StatusTooManyRequests:
		err = errNotReady
	case !w.follows(&head):
		err = errOtherWatch
	}
	if err != nil {
		unwatch()
		e.put(c, false)
		return err
	}
	head.Forget() // the client has the head of the first one
	c.FreeHead()
	x.conn, x.endpoint, x.unwatch, x.response = c, e, unwatch, head
	return nil
}

var errNotReady = errors.New("it is not ready")

// follows reports whether a response is the next leg.
func (w *watch) follows(head *h1.Response) bool {
	return head.Status == http.StatusOK && head.Chunked && resumable(head) &&
		fieldOf(head, "Content-Type") == w.contentType && fieldOf(head, "Content-Encoding") == ""
}

// Write implements h1.Sink.
func (w *watch) Write(p []byte) (int, error) {
	if w.events.Encoding == frames.None {
		return len(p), w.send(p)
	}
	var run []byte // of events that are passed on, each of which lies behind the one before
	for event := range w.events.Add(p) {
		looked := w.events.Encoding.Look(event)
		if looked.Kind == frames.Error && w.from > 0 && w.position == w.from {
			return 0, errWatchOver // it is told when it asks by itself
		}
		passed := w.passes(looked)
		if w.resume.Difference != "" {
			return 0, errWatchOver
		}
		if passed && run != nil {
			run = run[:len(run)+len(event)]
			continue
		}
		if err := w.send(run); err != nil {
			return 0, err
		}
		if run = nil; passed {
			run = event
		}
	}
	if err := w.send(run); err != nil {
		return 0, err
	}
	if w.events.Err() == nil && w.settle(int64(len(w.events.Rest()))) {
		return len(p), nil
	}
	rest := w.events.Rest() // as it is, and so all that comes
	w.events, w.unordered = frames.Splitter{}, true
	w.settle(0)
	return len(p), w.send(rest)
}

func (w *watch) send(p []byte) error {
	switch {
	case len(p) == 0:
		return nil
	case !w.compresses:
		_, err := w.x.Write(p)
		return err
	case w.member == nil:
		w.member = members.Get().(*gzip.Writer)
		w.member.Reset(w.x)
	}
	_, err := w.member.Write(p)
	return err
}

// members compress as fast as they can, as Kubernetes' handler does.
var members = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

// endMember ends the member that has begun: each flush is one, so that a watch which is silent holds nothing. Flush
// comes first: Go's reader of gzip waits for the next member before it hands over the last block of one.
func (w *watch) endMember() {
	if w.member != nil {
		_ = errors.Join(w.member.Flush(), w.member.Close()) // the next write to the client fails, too
		w.member.Reset(nil)
		members.Put(w.member)
		w.member = nil
	}
}

// passes takes note of an event, and reports whether it is for the client.
func (w *watch) passes(e frames.Event) bool {
	switch {
	case e.Revision == 0: // an error, or what is not known
		w.unordered = true
	case e.Revision <= w.from: // the client has it
		w.resume.Difference = w.overlap.again(e)
		return false
	case e.Kind == frames.Added && w.initial:
	default:
		if w.resume.Difference = w.overlap.end(); w.resume.Difference != "" {
			return false
		}
		w.initialEnd = time.Time{}
		if w.initial {
			w.initial, w.initialEnd = false, time.Now()
		}
		w.unordered = w.unordered || e.Revision < w.position
		w.position = e.Revision
		w.overlap.add(e)
	}
	return e.Kind != frames.Bookmark || w.query.bookmarks
}

// keptEvent is up to where the beginning of an event takes no room: it is what is read from a stage at once.
const keptEvent = 128 << 10

// settle takes room for the beginning of an event of n bytes in place of what was taken before, and reports whether
// there is any.
func (w *watch) settle(n int64) bool {
	if n <= keptEvent {
		n = 0
	}
	if n > w.room && !w.x.endpoint.chunks.TryTake(n-w.room) {
		return false
	}
	if n < w.room {
		w.x.endpoint.chunks.Give(w.room - n)
	}
	w.room = n
	return true
}

// Flush implements h1.Sink.
func (w *watch) Flush() {
	w.endMember()
	w.x.Flush()
}

// Trailer implements h1.Sink.
func (w *watch) Trailer(f h1.Field) {
	if f.Key == header.Watch {
		w.drained = f.Value == header.WatchDraining
		return
	}
	w.x.Trailer(f)
}
