package stagetest

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
)

// record is what the stage has done with a call.
type record struct {
	id int

	mu          sync.Mutex
	unclaimed   bool
	declined    bool
	called      int
	annotations map[string]string
}

type recordKey struct{}

// recordFrom returns nil for requests that no Do has made.
func recordFrom(r *http.Request) *record {
	record, _ := r.Context().Value(recordKey{}).(*record)
	return record
}

func (r *record) note(f func(*record)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

func (r *record) annotate(values []string) {
	if len(values) > 0 {
		r.note(func(r *record) { maps.Copy(r.annotations, annotationsOf(values)) })
	}
}

// records are those of the calls that have not ended.
type records struct {
	mu   sync.Mutex
	last int
	all  map[int]*record
}

func (rs *records) add() *record {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.all == nil {
		rs.all = map[int]*record{}
	}
	rs.last++
	r := &record{id: rs.last, annotations: map[string]string{}}
	rs.all[r.id] = r
	return r
}

func (rs *records) remove(r *record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.all, r.id)
}

// find returns nil for requests that no Do has made.
func (rs *records) find(id string) *record {
	n, err := strconv.Atoi(id)
	if err != nil {
		return nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.all[n]
}
