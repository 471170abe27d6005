package relay

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// delegateCalls bounds what stages ask their delegates for, and the server in their own name, each stage by itself.
type delegateCalls struct {
	mu     sync.Mutex
	stages map[string]*stageCalls
}

func (d *delegateCalls) of(stage string) *stageCalls {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stages == nil {
		d.stages = map[string]*stageCalls{}
	}
	if d.stages[stage] == nil {
		d.stages[stage] = newStageCalls()
	}
	return d.stages[stage]
}

// stageCalls are those of one stage.
type stageCalls struct {
	// all are those that wait and those that are served.
	all, served *semaphore.Weighted
	bytes       *rate.Limiter
	// allOwn and own are the same of requests to the server, ownStreams those that may stay and do not wait.
	allOwn, own, ownStreams *semaphore.Weighted
}

func newStageCalls() *stageCalls {
	return &stageCalls{
		all:    semaphore.NewWeighted(bounds.DelegateCalls + bounds.WaitingCalls),
		served: semaphore.NewWeighted(bounds.DelegateCalls),
		bytes:  rate.NewLimiter(bounds.CallRate, bounds.CallBurst),
		allOwn: semaphore.NewWeighted(bounds.OwnCalls + bounds.WaitingCalls),
		own:    semaphore.NewWeighted(bounds.OwnCalls),

		ownStreams: semaphore.NewWeighted(bounds.OwnStreams),
	}
}

// serve has next serve a request when it may be, or else sets Retry-After and returns false: it is too much.
func (s *stageCalls) serve(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
	if !s.all.TryAcquire(1) {
		s.retryAfter(w)
		return false
	}
	defer s.all.Release(1)
	if err := s.wait(r.Context()); err != nil {
		s.retryAfter(w)
		return false
	}
	defer s.served.Release(1)
	counted := &countingWriter{ResponseWriter: w}
	defer func() {
		if more := counted.n - bounds.CallCost; more > 0 { // later requests wait for it
			s.bytes.ReserveN(time.Now(), min(more, bounds.CallBurst))
		}
	}()
	next.ServeHTTP(counted, r)
	return true
}

// serveOwn has the server serve a request, or else sets Retry-After and returns false.
func (s *stageCalls) serveOwn(w http.ResponseWriter, r *http.Request, server http.Handler) bool {
	release := s.acquireOwn(r)
	if release == nil {
		w.Header().Set("Retry-After", "1")
		return false
	}
	defer release()
	server.ServeHTTP(w, r)
	return true
}

// acquireOwn returns what gives back the place of a request, or nil.
func (s *stageCalls) acquireOwn(r *http.Request) (release func()) {
	if mayStay(r) {
		if !s.ownStreams.TryAcquire(1) {
			return nil
		}
		return func() { s.ownStreams.Release(1) }
	}
	if !s.allOwn.TryAcquire(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), bounds.CallWait)
	defer cancel()
	if s.own.Acquire(ctx, 1) != nil {
		s.allOwn.Release(1)
		return nil
	}
	return func() {
		s.own.Release(1)
		s.allOwn.Release(1)
	}
}

// mayStay reports whether a request looks like one that takes as long as its client likes. Any can: they have a bound of their own.
func mayStay(r *http.Request) bool {
	if h1.UpgradeOf(r) != "" {
		return true
	}
	watch := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (watch == "true" || watch == "1")
}

// wait returns when a request may be served. The caller then releases what it has of served.
func (s *stageCalls) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bounds.CallWait)
	defer cancel()
	if err := s.served.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := s.bytes.WaitN(ctx, bounds.CallCost); err != nil {
		s.served.Release(1)
		return err
	}
	return nil
}

func (s *stageCalls) retryAfter(w http.ResponseWriter) {
	seconds := math.Ceil((bounds.CallCost - s.bytes.Tokens()) / bounds.CallRate)
	w.Header().Set("Retry-After", strconv.Itoa(int(max(seconds, 1))))
}

// countingWriter counts the bytes of a response.
type countingWriter struct {
	http.ResponseWriter
	n int
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.n += n
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
