package h1

import "time"

// Bounds of a pool.
const (
	MaxIdle     = 256
	MaxIdleTime = 60 * time.Second
)

// Pool holds the idle connections to one socket, at most MaxIdle, and for little more than
// MaxIdleTime while requests come. The zero value is an empty pool. Its caller serialises
// the calls.
type Pool struct {
	idle []*Conn // the longest unused first
}

// Len returns the number of idle connections.
func (p *Pool) Len() int { return len(p.idle) }

// Take returns the connection that was used last, or nil. The stage may
// have closed it: see Silent.
func (p *Pool) Take() *Conn {
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c
}

// Put adds a connection. It returns one that the caller has to close instead, or nil.
func (p *Pool) Put(c *Conn) (evicted *Conn) {
	now := time.Now()
	if n := len(p.idle); n > 0 && (n == MaxIdle || now.Sub(p.idle[0].idleSince) > MaxIdleTime) {
		evicted = p.idle[0]
		p.idle = append(p.idle[:0], p.idle[1:]...)
	}
	c.idleSince = now
	p.idle = append(p.idle, c)
	return evicted
}

// Close closes all idle connections.
func (p *Pool) Close() {
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}
