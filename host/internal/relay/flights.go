package relay

import (
	"net/http"
	"sync"
	"sync/atomic"
)

// flights are the requests that are with a stage, by their ids.
type flights struct {
	last   atomic.Uint64
	shards [32]struct {
		sync.Mutex
		m map[uint64]flight
	}
}

type flight struct {
	stage string
	// snapshot is the chain as it was when the request came.
	snapshot *Snapshot
	r        *http.Request
	// called is set when the stage calls the next one for this request.
	called *atomic.Bool
}

// begin returns the id of a new request.
func (f *flights) begin() uint64 { return f.last.Add(1) }

// set says which stage has the request. It has not called yet.
func (f *flights) set(id uint64, fl flight) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	if s.m == nil {
		s.m = make(map[uint64]flight)
	}
	fl.called.Store(false)
	s.m[id] = fl
}

// end forgets the request. Its called is not touched any more.
func (f *flights) end(id uint64) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	delete(s.m, id)
}

// call returns the request with that id if the stage has it, and marks it as called.
func (f *flights) call(id uint64, stage string) (flight, bool) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	fl, ok := s.m[id]
	if !ok || fl.stage != stage {
		return flight{}, false
	}
	fl.called.Store(true)
	return fl, true
}
