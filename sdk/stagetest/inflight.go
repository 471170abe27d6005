package stagetest

import (
	"net/http"
	"strconv"
	"sync"
)

// inFlight are the requests that the stage is serving, by the host's id.
type inFlight struct {
	mu      sync.Mutex
	last    int
	running map[string]*http.Request
}

func (f *inFlight) begin(r *http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	id := strconv.Itoa(f.last)
	if f.running == nil {
		f.running = map[string]*http.Request{}
	}
	f.running[id] = r
	return id
}

func (f *inFlight) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, id)
}

func (f *inFlight) get(id string) *http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[id]
}
