// Package leaders has one process at a time do what a stage does in the background, of all its processes on all hosts
// that share a store. Who leads has a key in the store, as long as its request to the host lasts.
package leaders

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// Leaders serves the requests by which processes of stages lead.
type Leaders struct {
	connect func() (*clientv3.Client, error)
	prefix  string
	ctx     context.Context
	end     context.CancelFunc

	mu      sync.Mutex
	client  *clientv3.Client
	asked   map[string]int // by stage
	closed  bool
	serving sync.WaitGroup
}

// New returns what keeps its keys beside those below registry, such as /registry, in a store to which connect connects
// when it is open.
func New(registry string, connect func() (*clientv3.Client, error)) *Leaders {
	l := &Leaders{connect: connect, prefix: strings.TrimSuffix(registry, "/") + ".leaders/", asked: map[string]int{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// names are those that a lead can have.
var names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// Serve responds to a request when its process leads a stage, and ends the response when the process leads no more.
// Until the request ends, no other process leads by that name.
func (l *Leaders) Serve(w http.ResponseWriter, r *http.Request, stage, name string) {
	if !names.MatchString(name) {
		http.Error(w, "a lead's name has at most 63 lower-case letters, digits, dots and hyphens", http.StatusBadRequest)
		return
	}
	if err := l.begin(stage); err != nil {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer l.ended(stage)
	session, err := l.lead(r.Context(), stage+"/"+name)
	if err != nil {
		http.Error(w, "the store does not say who leads: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer session.Close() // which gives the key up
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-session.Done():
		panic(http.ErrAbortHandler)
	}
}

var errMany = fmt.Errorf("the stage asks for more than %d leads", bounds.Leads)

func (l *Leaders) begin(stage string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errors.New("the server is ending")
	case l.asked[stage] >= bounds.Leads:
		return errMany
	}
	l.asked[stage]++
	l.serving.Add(1)
	return nil
}

func (l *Leaders) ended(stage string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked[stage]--; l.asked[stage] == 0 {
		delete(l.asked, stage)
	}
	l.serving.Done()
}

// lead waits until no other process has the key. The caller closes the session.
func (l *Leaders) lead(ctx context.Context, key string) (*concurrency.Session, error) {
	client, err := l.connected()
	if err != nil {
		return nil, err
	}
	lease, err := client.Grant(ctx, int64(bounds.LeadTime.Seconds()))
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithContext(l.ctx))
	if err != nil {
		return nil, err
	}
	if err := concurrency.NewMutex(session, l.prefix+key).Lock(ctx); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return session, nil
}

func (l *Leaders) connected() (*clientv3.Client, error) {
	l.mu.Lock()
	client := l.client
	l.mu.Unlock()
	if client != nil {
		return client, nil
	}
	client, err := l.connect()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil { // by another request meanwhile
		return l.client, client.Close()
	}
	l.client = client
	return client, nil
}

// closeTimeout bounds the end where the store does not respond: the keys go with their leases then.
const closeTimeout = 2 * time.Second

// Close waits until the requests have given up their keys, for which their connections have to have ended, and
// disconnects from the store.
func (l *Leaders) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	defer time.AfterFunc(closeTimeout, l.end).Stop()
	l.serving.Wait()
	l.end()
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}
