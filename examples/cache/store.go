package main

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// entry is a response that is kept. Nothing in it changes.
type entry struct {
	resource string
	header   http.Header
	body     []byte
	at       time.Time
	size     int
}

// overhead is about the memory that a response takes besides its body.
const overhead = 2048

// store keeps responses for a while, as long as their resource is not written.
type store struct {
	ttl  time.Duration
	most int
	now  func() time.Time

	mu      sync.Mutex
	entries map[string]*entry
	size    int
	// written is the number of the latest write to a resource, or else known, so that an
	// response that was read before one is not put after it.
	written       map[string]int
	known, latest int
}

// maxWritten bounds what is remembered of resources.
const maxWritten = 4096

func newStore(ttl time.Duration, most int, now func() time.Time) *store {
	return &store{ttl: ttl, most: most, now: now, entries: map[string]*entry{}, written: map[string]int{}}
}

// get returns the response for key and its age, or nil.
func (s *store) get(key string) (*entry, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return nil, 0
	}
	age := s.now().Sub(e.at)
	if age >= s.ttl {
		s.remove(key)
		return nil, 0
	}
	return e, age
}

// reading is where a resource was when the reading of a response began.
type reading struct {
	written int
	at      time.Time
}

// begin is called before a response is read that is to be put.
func (s *store) begin(resource string) reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return reading{written: s.lastWrite(resource), at: s.now()}
}

func (s *store) lastWrite(resource string) int {
	if n, ok := s.written[resource]; ok {
		return n
	}
	return s.known
}

// put keeps a response, unless its resource has been written since.
func (s *store) put(key, resource string, begun reading, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastWrite(resource) != begun.written {
		return
	}
	s.remove(key)
	e.resource, e.at, e.size = resource, begun.at, len(e.body)+len(key)+overhead
	if s.size+e.size > s.most {
		clear(s.entries) // simple, and seldom
		s.size = 0
	}
	s.entries[key] = e
	s.size += e.size
}

func (s *store) remove(key string) {
	if e := s.entries[key]; e != nil {
		s.size -= e.size
		delete(s.entries, key)
	}
}

// invalidate forgets all responses about a resource.
func (s *store) invalidate(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest++
	if len(s.written) >= maxWritten {
		clear(s.written)
		s.known = s.latest
	}
	s.written[resource] = s.latest
	for key, e := range s.entries {
		if e.resource == resource {
			s.remove(key)
		}
	}
}

// tee passes a response on, and keeps a copy if it is not too large.
type tee struct {
	http.ResponseWriter
	most   int
	status int
	body   bytes.Buffer
	large  bool
}

func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *tee) WriteHeader(code int) {
	t.status = code
	t.ResponseWriter.WriteHeader(code)
}

func (t *tee) Write(p []byte) (int, error) {
	if t.status == 0 {
		t.status = http.StatusOK
	}
	if t.large = t.large || t.body.Len()+len(p) > t.most; !t.large {
		t.body.Write(p)
	}
	n, err := t.ResponseWriter.Write(p)
	t.large = t.large || err != nil
	return n, err
}

// entry returns the response, nil if it is not to be kept.
func (t *tee) entry() *entry {
	header := t.Header().Clone()
	if t.status != http.StatusOK || t.large || header.Get("Warning") != "" || header.Get("Set-Cookie") != "" {
		return nil
	}
	if length := header.Get("Content-Length"); length != "" && length != strconv.Itoa(t.body.Len()) {
		return nil // it has been broken off
	}
	header.Del("Date")
	return &entry{header: header, body: bytes.Clone(t.body.Bytes())}
}
