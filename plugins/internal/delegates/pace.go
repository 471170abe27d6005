package delegates

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

const (
	// pollInterval is how often an unchanged document is asked for; of discovery, the response is
	// 304 and empty. Kubernetes polls local OpenAPI documents as often.
	pollInterval = time.Second
	// restInterval is how often when none has changed for restAfter: each request wakes three processes.
	restInterval = 5 * time.Second
	restAfter    = 10 * time.Second
)

// pace is how often a delegate is asked for its documents.
type pace struct {
	mu      sync.Mutex
	changed time.Time
}

// change announces that a document has changed, or is about to.
func (p *pace) change() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = time.Now()
}

// interval returns the time from one request for a document to the next.
func (p *pace) interval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.changed) < restAfter {
		return pollInterval
	}
	return restInterval
}

// index serves a delegate's index of OpenAPI documents. Kubernetes asks for it each second, and gets the one before as long as the
// delegate rests.
type index struct {
	next http.Handler
	pace *pace

	mu    sync.Mutex
	asked time.Time
	last  *document
}

// ServeHTTP implements http.Handler.
func (i *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if last := i.resting(); last != nil {
		last.send(w)
		return
	}
	response := &document{limit: maxWhole, header: http.Header{}, code: http.StatusOK, cancel: func() {}}
	i.next.ServeHTTP(response, r)
	i.keep(response)
	response.send(w)
}

// resting returns the last index, nil if the delegate is to be asked.
func (i *index) resting() *document {
	interval := i.pace.interval()
	i.mu.Lock()
	defer i.mu.Unlock()
	if interval == restInterval && time.Since(i.asked) < interval-pollInterval/2 && i.last != nil && i.last.code == http.StatusOK {
		return i.last
	}
	i.asked = time.Now()
	return nil
}

// keep takes note of a response.
func (i *index) keep(response *document) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.last == nil || i.last.code != response.code || !bytes.Equal(i.last.text.Bytes(), response.text.Bytes()) {
		i.pace.change()
	}
	i.last = response
}
