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
	// socket is that of the process that has the request.
	socket string
	// snapshot is the chain as it was when the request came.
	snapshot *snapshot
	r        *http.Request
	role     *role
	// kubernetes is Stage.Kubernetes.
	kubernetes bool
}

// requestAt returns a request as one that the process of an endpoint has.
func requestAt(e *endpoint, x *request, s *snapshot) inFlightRequest {
	r := inFlightRequest{snapshot: s, r: x.r, role: x.role, kubernetes: x.kubernetes}
	if e != nil {
		r.socket = e.socket
	}
	return r
}

// role is what a stage does with a request that it has: it calls the next stage for it, or serves it itself. A stage
// that has described in the audit event what it has served cannot have another serve it afterwards.
type role struct{ atomic.Uint32 }

const (
	roleOpen uint32 = iota
	roleServes
	roleCalls // and one more for each call that may have been executed and is not safe
)

func (r *role) reset() { r.Store(roleOpen) }

// call reports whether the stage may call the next one, which it then has.
func (r *role) call() bool { return r.CompareAndSwap(roleOpen, roleCalls) || r.hasCalled() }

// serve reports whether the stage serves the request itself. From then on it does.
func (r *role) serve() bool { return r.CompareAndSwap(roleOpen, roleServes) || r.Load() == roleServes }

func (r *role) hasCalled() bool { return r.Load() >= roleCalls }

// hasWritten reports whether a call may have been executed that is not safe: the request is not to be executed once
// more.
func (r *role) hasWritten() bool { return r.Load() > roleCalls }

// newID returns the id of a new request.
func (f *inFlight) newID() uint64 { return f.last.Add(1) }

// set records which process has the request. It has not called yet.
func (f *inFlight) set(id uint64, r inFlightRequest) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	if s.m == nil {
		s.m = make(map[uint64]inFlightRequest)
	}
	r.role.reset()
	s.m[id] = r
}

// remove forgets the request. Its role is not touched any more.
func (f *inFlight) remove(id uint64) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	delete(s.m, id)
}

// find returns the request with that id if the process with a socket has it.
func (f *inFlight) find(id uint64, socket string) (inFlightRequest, bool) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	r, ok := s.m[id]
	return r, ok && r.socket == socket
}

// call returns the request with that id if the process with a socket has it and may call the next stage for it, which it then has.
func (f *inFlight) call(id uint64, socket string) (inFlightRequest, bool) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	r, ok := s.m[id]
	if !ok || r.socket != socket || !r.role.call() {
		return inFlightRequest{}, false
	}
	return r, true
}

// write returns how many of the calls for a request have been to write, of the process with a socket that calls once
// more to do so; false if it may not call any more.
func (f *inFlight) write(id uint64, socket string) (before uint32, ok bool) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	r, ok := s.m[id]
	if !ok || r.socket != socket || !r.role.call() {
		return 0, false
	}
	return r.role.Add(1) - roleCalls - 1, true
}

// serve returns the request with that id if the process with a socket has it and may serve it itself, which it then does.
func (f *inFlight) serve(id uint64, socket string) (inFlightRequest, bool) {
	s := &f.shards[id%uint64(len(f.shards))]
	s.Lock()
	defer s.Unlock()
	r, ok := s.m[id]
	if !ok || r.socket != socket || !r.role.serve() {
		return inFlightRequest{}, false
	}
	return r, true
}
