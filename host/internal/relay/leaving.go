package relay

import (
	"context"
	"sync"
)

// leaving are the endpoints that Set has taken out of the chain and that still have
// requests, by their sockets.
type leaving struct {
	mu        sync.Mutex
	endpoints map[string]*Endpoint
}

func (l *leaving) add(e *Endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endpoints == nil {
		l.endpoints = map[string]*Endpoint{}
	}
	l.endpoints[e.Socket()] = e
	go func() {
		<-e.empty
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.endpoints[e.Socket()] == e {
			delete(l.endpoints, e.Socket())
		}
	}()
}

// AwaitEmpty returns when no request is left at a socket that Set has taken out of the
// chain, or with ctx's error. Only then may its process end: a request may be on its way
// to a process that has none.
func (c *Chain) AwaitEmpty(ctx context.Context, socket string) error {
	c.leaving.mu.Lock()
	e := c.leaving.endpoints[socket]
	c.leaving.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.Wait(ctx)
}
