package shadow

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/panics"
)

// Side is one of the two generations.
type Side int

// The generation that serves, and the one that is compared with it.
const (
	Old Side = iota
	New
)

// ErrTooLarge is why a response is not compared.
var ErrTooLarge = errors.New("the response is too large to be compared")

const (
	// MaxBody bounds the body of a write, MaxResponse a response, in bytes.
	MaxBody     = 64 << 10
	MaxResponse = 4 << 20
	// maxQueue bounds the requests that wait to be compared.
	maxQueue = 128
	// askTimeout bounds one request to a generation.
	askTimeout = 10 * time.Second
)

// Options say what is compared with what.
type Options struct {
	Stage, Binary string
	// From and To are the versions of the two generations.
	From, To string
	// Sample is the share of the requests that are compared, from 0 to 1.
	Sample float64
	// For is how long that goes on.
	For time.Duration
	// Budget is how many CPUs comparing may take. A comparison that waits counts as one that computes.
	Budget float64
	// Writes reports whether writes are compared, as dry runs.
	Writes bool
	// Ask sends a request to a generation. The error is why there is no response; it is ErrTooLarge if that cannot be compared.
	Ask func(ctx context.Context, to Side, q Request) (Response, error)
	// MayDryRun returns why a write is not to be asked again as a dry run; "" if it may be.
	MayDryRun func(ctx context.Context, q Request) string
	// Secret reports whether the objects of a resource are secret as a whole.
	Secret func(Resource) bool
	// Observe is called with the result of each comparison, and with Dropped.
	Observe func(result string)
}

// Shadow is a comparison of two generations under way, or one that has ended.
type Shadow struct {
	opts   Options
	queue  chan Request
	cancel context.CancelCauseFunc
	ctx    context.Context
	done   chan struct{}

	dropped atomic.Int64
	noise   noise

	mu     sync.Mutex
	report Report
	groups map[groupKey]*Group
}

// Why a shadow ends.
var (
	ErrOver    = errors.New("its time was over")
	ErrStopped = errors.New("it was stopped")
)

// Start begins to compare what is offered, until Options.For is over or End is called.
func Start(o Options) *Shadow {
	s := &Shadow{opts: o, queue: make(chan Request, maxQueue), done: make(chan struct{}), groups: map[groupKey]*Group{}}
	s.report = Report{
		Stage: o.Stage, Binary: o.Binary, From: o.From, To: o.To, Began: time.Now(), Until: time.Now().Add(o.For), Sample: o.Sample,
		Writes: o.Writes, Results: map[string]int64{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	timer := time.AfterFunc(o.For, func() { s.cancel(ErrOver) })
	workers := max(1, int(math.Ceil(o.Budget)))
	rest := float64(workers)/o.Budget - 1
	var running sync.WaitGroup
	for range workers {
		running.Go(panics.Contain(func() { s.work(rest) }, s.cancel))
	}
	go panics.Contain(func() {
		<-s.ctx.Done()
		timer.Stop()
		running.Wait()
		s.mu.Lock()
		s.report.Ended, s.report.Why = time.Now(), context.Cause(s.ctx).Error()
		s.mu.Unlock()
		close(s.done)
	}, s.cancel)()
	return s
}

// End ends the comparison, for a reason, and returns at once. The first reason counts.
func (s *Shadow) End(why error) { s.cancel(why) }

// Done is closed when the comparison has ended.
func (s *Shadow) Done() <-chan struct{} { return s.done }

// Stage is the stage that is compared.
func (s *Shadow) Stage() string { return s.opts.Stage }

// Sampled reports whether the next request is one of the share that is compared.
func (s *Shadow) Sampled() bool { return rand.Float64() < s.opts.Sample }

// Offer hands over a request to be compared. It does not wait: the request is dropped if too many wait already.
func (s *Shadow) Offer(q Request) {
	select {
	case s.queue <- q:
	default:
		s.dropped.Add(1)
		s.opts.Observe(Dropped)
	}
}

// work compares requests one by one, and rests between them so many times as long as each took.
func (s *Shadow) work(rest float64) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case q := <-s.queue:
			began := time.Now()
			result, found := s.compare(s.ctx, q)
			if s.ctx.Err() != nil {
				return // the generation may have been ending
			}
			s.record(q, result, found)
			s.opts.Observe(result)
			if !pause(s.ctx, time.Duration(rest*float64(time.Since(began)))) {
				return
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// The results of a comparison.
const (
	Equal     = "equal"
	Different = "different"
	// Moved: what the request reads changed while both generations were asked, each time.
	Moved = "moved"
	// NoResponse: the generation that serves did not respond.
	NoResponse = "no response"
	TooLarge   = "too large"
	// NotSent: a write that must not be a dry run.
	NotSent = "not sent"
	// Dropped: more requests came than the budget allows to compare.
	Dropped = "dropped"
)

// Results are all results, in the order in which they are told.
func Results() []string {
	return []string{Equal, Different, Moved, NoResponse, TooLarge, NotSent, Dropped}
}

const (
	// rounds is how often a difference is looked at that could come from a change in between.
	rounds = 5
	// firstPause comes before the second of them, and doubles from there on.
	firstPause = 20 * time.Millisecond
)

// compare asks both generations, and the old one again if they differ: what differs between two of its own responses is no
// difference. One that could come from a change in between has to show in each of several rounds.
func (s *Shadow) compare(ctx context.Context, q Request) (result string, found []difference) {
	q, result = s.prepare(ctx, q)
	if result != "" {
		return result, nil
	}
	wait := firstPause
	seen := 0
	for round := range rounds {
		if round > 0 && !pause(ctx, wait) {
			return Moved, nil
		}
		if round > 0 {
			wait *= 2
		}
		var old, next, again Response
		if old, result = s.old(ctx, q); result != "" {
			return result, nil
		}
		var err error
		if next, err = s.ask(ctx, New, q); errors.Is(err, ErrTooLarge) {
			return TooLarge, nil
		} // any other error is a response that is missing
		now := s.noise.without(q.label(), differences(old, next))
		if len(now) == 0 {
			return Equal, nil
		}
		if again, result = s.old(ctx, q); result != "" {
			return result, nil
		}
		if versionOf(old) != versionOf(again) {
			continue
		}
		jitter := differences(old, again)
		if q.Resource.Name != "" && old.Status == http.StatusOK || q.isWrite() { // an error or a document has no version: it may change
			s.learn(q.label(), jitter, versionOf(old).resource != "" || q.isWrite())
		}
		if now = without(now, jitter); len(now) == 0 {
			return Equal, nil
		}
		seen++
		if found = both(found, now); len(found) == 0 {
			return Moved, nil // another field each time
		}
		if v := versionOf(old); v.resource != "" && v == versionOf(next) && !q.isWrite() || next.Status == 0 && seen == 2 {
			return Different, found
		}
	}
	if seen == rounds {
		return Different, found
	}
	return Moved, nil
}

// prepare returns the request as both generations are asked it, or why they are not.
func (s *Shadow) prepare(ctx context.Context, q Request) (Request, string) {
	if q.isWrite() {
		if why := s.opts.MayDryRun(ctx, q); why != "" {
			s.because(why)
			return q, NotSent
		}
		return q.asNew().dryRun(), ""
	}
	if !q.pinnable() {
		return q, ""
	}
	first, result := s.old(ctx, q)
	if result != "" {
		return q, result
	}
	version := versionOf(first)
	if first.Status != http.StatusOK || version.resource == "" || version.resource == "0" {
		return q, ""
	}
	pinned := q.pinned(version.resource)
	again, result := s.old(ctx, pinned)
	if again.Status == http.StatusOK {
		return pinned, result
	}
	return q, result // some servers do not know of exact versions
}

func (s *Shadow) old(ctx context.Context, q Request) (Response, string) {
	r, err := s.ask(ctx, Old, q)
	switch {
	case errors.Is(err, ErrTooLarge):
		return r, TooLarge
	case err != nil:
		if ctx.Err() == nil {
			s.because(err.Error())
		}
		return r, NoResponse
	}
	return r, ""
}

func (s *Shadow) ask(ctx context.Context, to Side, q Request) (Response, error) {
	if err := q.check(); err != nil {
		return Response{}, err
	}
	ctx, cancel := context.WithTimeout(q.As(ctx), askTimeout)
	defer cancel()
	return s.opts.Ask(ctx, to, q)
}

// version is what of a response changes with what it reads.
type version struct {
	status   int
	resource string
}

func versionOf(r Response) version {
	v := version{status: r.Status}
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(r.Body, &object) == nil {
		v.resource = object.Metadata.ResourceVersion
	}
	return v
}

// both returns the differences that were found before too, if there was a before.
func both(before, now []difference) []difference {
	if before == nil {
		return now
	}
	known := map[[2]string]bool{}
	for _, d := range before {
		known[[2]string{d.path, d.how}] = true
	}
	return slices.DeleteFunc(now, func(d difference) bool { return !known[[2]string{d.path, d.how}] })
}

// without returns the differences that are not in jitter, nor in a field around one that is.
func without(all, jitter []difference) []difference {
	return slices.DeleteFunc(all, func(d difference) bool {
		return slices.ContainsFunc(jitter, func(j difference) bool { return around(j.path, d.path) })
	})
}
