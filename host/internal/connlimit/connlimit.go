// Package connlimit bounds what connections make a server hold before it knows whose requests they
// carry: descriptors of the process, connections of one listener, and bytes of heads.
package connlimit

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Shares of the descriptors of this process, in percent, above which a connection is not accepted or made: what is left is for
// etcd, files, and the start of processes. Clients leave more than stages do, which serve them.
const (
	Clients = 80
	Stages  = 88
	Relay   = 95
)

// The reasons for which Options.Refused is called.
const (
	Descriptors = "descriptors"
	Connections = "connections"
	Heads       = "heads"
)

// Options say what is bounded.
type Options struct {
	// Share is that of the descriptors of this process, in percent, which may be in use.
	Share int
	// Connections is how many there may be; 0 is no bound. Unbounded reports whether it does not hold at present; nil if it does.
	Connections int
	Unbounded   func() bool
	// Heads is how many bytes connections may hold at once, as Conn says; 0 is no bound. Requests have to be marked
	// with Begin and End then. Where it is reached, those that hold something wait, and those are closed that have
	// held most for the longest time, in bytes times seconds, and whose heads are not complete, until an eighth is
	// free: who sends a head at once is not in their way.
	Heads int64
	// Unknown reports whether clients are unknown until Known is called.
	Unknown bool
	// Refused is called when a bound is exceeded, with one of the reasons; it may be nil.
	Refused func(reason string)
}

// Listener accepts connections within bounds. Its Close leaves the connections open.
type Listener struct {
	net.Listener
	opts  Options
	limit atomic.Uint64 // of descriptors

	held     atomic.Int64 // by connections
	leaving  atomic.Int64 // of that, what those do that have been closed a moment ago
	clearing sync.Mutex
	cleared  time.Time

	mu   sync.Mutex
	open map[*Conn]struct{}

	byAddress sync.Map // of remote addresses, to *Conn
}

// New bounds the connections of a listener.
func New(l net.Listener, o Options) *Listener {
	limited := &Listener{Listener: l, opts: o, open: map[*Conn]struct{}{}}
	limited.limit.Store(ProcessDescriptors())
	return limited
}

// Accept returns the next connection, a *Conn. Those that are out of bounds are closed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.take(conn); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}

// take returns nil if the connection is out of bounds.
func (l *Listener) take(conn net.Conn) *Conn {
	if beyond(conn, l.limit.Load(), l.opts.Share) && !l.closeIdle() {
		l.refused(Descriptors)
		return nil
	}
	c := &Conn{Conn: conn, l: l, address: conn.RemoteAddr().String()}
	c.known.Store(!l.opts.Unknown)
	c.last.Store(time.Now().UnixNano())
	if !l.add(c) {
		l.refused(Connections)
		return nil
	}
	return c
}

func (l *Listener) add(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.Connections > 0 && len(l.open) >= l.opts.Connections && (l.opts.Unbounded == nil || !l.opts.Unbounded()) {
		return false
	}
	l.open[c] = struct{}{}
	l.byAddress.Store(c.address, c)
	return true
}

func (l *Listener) refused(reason string) {
	if l.opts.Refused != nil {
		l.opts.Refused(reason)
	}
}

// closeIdle closes those of the connections without a request that have had none for the longest time, a twentieth of them,
// and reports whether there were any.
func (l *Listener) closeIdle() bool {
	idle := l.ranked(func(c *Conn) float64 {
		if c.active.Load() != 0 {
			return 0
		}
		return 1 / float64(c.last.Load())
	})
	closed := 0
	for _, c := range idle[:(len(idle)+19)/20] {
		if c.claim() {
			_ = c.Close()
			closed++
		}
	}
	return closed > 0
}

// CloseIdle closes the connections without a request that have had none for that long. A client may be about to make
// the first one on a newer connection.
func (l *Listener) CloseIdle(least time.Duration) {
	since := time.Now().Add(-least).UnixNano()
	for _, c := range l.Open() {
		if c.last.Load() <= since && c.claim() {
			_ = c.Close()
		}
	}
}

// full reports whether there is no room.
func (l *Listener) full() bool { return l.held.Load() > l.opts.Heads }

// makeRoom closes connections that hold what is of no request, until an eighth of what they may hold is free, or will
// be in a moment.
func (l *Listener) makeRoom() {
	l.clearing.Lock()
	defer l.clearing.Unlock()
	now := time.Now()
	if !l.full() || now.Sub(l.cleared) < waitPause {
		return // another has made it
	}
	l.cleared = now
	for _, c := range l.ranked(func(c *Conn) float64 { return c.closable(now) }) {
		if l.held.Load()-l.leaving.Load() <= l.opts.Heads-l.opts.Heads/8 {
			return
		}
		if c.closable(now) > 0 && (c.active.Load() != 0 || c.claim()) {
			l.refused(Heads)
			_ = c.Close()
		}
	}
}

// ranked returns the connections whose rank is not 0, those of the highest first.
func (l *Listener) ranked(rank func(*Conn) float64) []*Conn {
	ranks := map[*Conn]float64{}
	for _, c := range l.Open() {
		if r := rank(c); r != 0 {
			ranks[c] = r
		}
	}
	return slices.SortedFunc(maps.Keys(ranks), func(a, b *Conn) int { return cmp.Compare(ranks[b], ranks[a]) })
}

// Open returns the connections that are open.
func (l *Listener) Open() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make([]*Conn, 0, len(l.open))
	for c := range l.open {
		open = append(open, c)
	}
	return open
}

// From returns the connection with a remote address, or nil. Addresses of Unix sockets are no names.
func (l *Listener) From(address string) *Conn {
	c, _ := l.byAddress.Load(address)
	conn, _ := c.(*Conn)
	return conn
}
