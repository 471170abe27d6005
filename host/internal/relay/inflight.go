package relay

import (
	"net/http"
	"sync"
	"sync/atomic"
)

// inFlight are the requests that are with a stage, by their ids.
type inFlight struct {
	last   atomic.Uint64
	shards [32]struct {
		sync.Mutex
		m map[uint64]inFlightRequest
	}
}

type inFlightRequest struct {
	stage string
	// snapshot is the chain as it was when the request came.
	snapshot *snapshot
	r        *http.Request
	// called is set when the stage calls the next one for this request.
	called *atomic.Bool
}

// newID returns the id of a new request.
func (f *inFlight) newID() uint64 { return f.last.Add(1) }

// set records which stage has the request. It has not called yet.
func (f *inFlight) set(id uint64, r inFlightRequest) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	if s.m == nil {
		s.m = make(map[uint64]inFlightRequest)
	}
	r.called.Store(false)
	s.m[id] = r
}

// remove forgets the request. Its called is not touched any more.
func (f *inFlight) remove(id uint64) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	delete(s.m, id)
}

// find returns the request with that id if the stage has it.
func (f *inFlight) find(id uint64, stage string) (inFlightRequest, bool) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	r, ok := s.m[id]
	return r, ok && r.stage == stage
}

// call returns the request with that id if the stage has it, and marks it as called.
func (f *inFlight) call(id uint64, stage string) (inFlightRequest, bool) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	r, ok := s.m[id]
	if !ok || r.stage != stage {
		return inFlightRequest{}, false
	}
	r.called.Store(true)
	return r, true
}
