// Package connlimit bounds what connections make a server hold before it knows whose requests they
// carry: descriptors of the process, connections of one listener, and bytes of heads.
package connlimit

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
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
	// Heads is how many bytes the heads of requests may hold at once, besides the first 8 KiB of each; 0 is no bound. Requests have to
	// be marked with Begin and End then. Where it is reached, those connections are closed that have held most for the longest time, in bytes
	// times seconds, and whose heads are not complete, until an eighth is free: who sends a head at once is not in their way.
	Heads int64
	// Refused is called when a bound is exceeded, with one of the reasons; it may be nil.
	Refused func(reason string)
}

// Listener accepts connections within bounds. Its Close leaves the connections open.
type Listener struct {
	net.Listener
	opts  Options
	limit atomic.Uint64 // of descriptors

	heads    atomic.Int64
	clearing sync.Mutex // of what heads hold

	mu   sync.Mutex
	open map[*Conn]struct{}

	byAddress sync.Map // of remote addresses, to *Conn
}

// New bounds the connections of a listener.
func New(l net.Listener, o Options) *Listener {
	limited := &Listener{Listener: l, opts: o, open: map[*Conn]struct{}{}}
	limited.limit.Store(descriptorLimit())
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
	idle := l.idle(func(c *Conn) float64 { return -float64(c.last.Load()) })
	closed := 0
	for _, c := range idle[:(len(idle)+19)/20] {
		if c.claim() {
			_ = c.Close()
			closed++
		}
	}
	return closed > 0
}

// CloseIdle closes the connections without a request that have had none for that long. A client may be about to make the first one on a newer connection.
func (l *Listener) CloseIdle(least time.Duration) {
	since := time.Now().Add(-least).UnixNano()
	for _, c := range l.Open() {
		if c.last.Load() <= since && c.claim() {
			_ = c.Close()
		}
	}
}

// makeRoom closes connections whose heads are not complete, until an eighth of what heads may hold is free.
func (l *Listener) makeRoom() {
	l.clearing.Lock()
	defer l.clearing.Unlock()
	if l.heads.Load() <= l.opts.Heads {
		return // another has made it
	}
	now := time.Now().UnixNano()
	for _, c := range l.idle(func(c *Conn) float64 { return float64(counted(c.head.Load())) * float64(max(1, now-c.began.Load())) }) {
		if l.heads.Load() <= l.opts.Heads-l.opts.Heads/8 {
			return
		}
		if counted(c.head.Load()) > 0 && c.claim() {
			l.refused(Heads)
			_ = c.Close()
		}
	}
}

// idle returns the connections that have no request, those of the highest rank first.
func (l *Listener) idle(rank func(*Conn) float64) []*Conn {
	ranks := map[*Conn]float64{}
	for _, c := range l.Open() {
		if c.active.Load() == 0 {
			ranks[c] = rank(c)
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

// From returns the connection with a remote address; nil if there is none. Addresses of Unix sockets are no names.
func (l *Listener) From(address string) *Conn {
	c, _ := l.byAddress.Load(address)
	conn, _ := c.(*Conn)
	return conn
}

// Conn is a connection that counts.
type Conn struct {
	net.Conn
	l       *Listener
	address string
	closed  atomic.Bool

	active atomic.Int64 // requests; negative when the connection is closed for want of room
	last   atomic.Int64 // when one has ended, or the connection was opened
	head   atomic.Int64 // bytes that were read while there was no request
	began  atomic.Int64 // when the first of them was
}

// freeHead is how many bytes of a head are not counted: buffers that every connection has hold them.
const freeHead = 8 << 10

// errHeads is why a connection is closed.
var errHeads = errors.New("the heads of requests that are being read hold too much")

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.l.opts.Heads > 0 && c.active.Load() == 0 && !c.count(int64(n)) {
		return 0, errors.Join(errHeads, c.Close())
	}
	return n, err
}

// count counts bytes of a head. It reports whether there is room for them.
func (c *Conn) count(n int64) bool {
	before := c.head.Load()
	if before == 0 {
		c.began.Store(time.Now().UnixNano())
	}
	c.head.Store(before + n)
	if over := counted(before+n) - counted(before); over > 0 && c.l.heads.Add(over) > c.l.opts.Heads {
		c.l.makeRoom()
		if !c.closed.Load() && c.l.heads.Load() > c.l.opts.Heads {
			c.l.refused(Heads)
			return false
		}
	}
	if c.closed.Load() { // meanwhile
		c.forget()
		return false
	}
	return true
}

// counted are the bytes of a head that count.
func counted(n int64) int64 { return max(0, n-freeHead) }

// Begin marks that a request has begun: its head has been read. The head counts until End. It reports false if the connection is being closed for want
// of room: the request is not to be served. A nil Conn is none that counts.
func (c *Conn) Begin() bool { return c == nil || c.active.Add(1) > 0 }

// claim reports whether the connection has no request, and then gets none.
func (c *Conn) claim() bool { return c.active.CompareAndSwap(0, math.MinInt64/2) }

// End marks that a request has ended.
func (c *Conn) End() {
	if c == nil {
		return
	}
	c.last.Store(time.Now().UnixNano())
	if c.active.Add(-1) == 0 {
		c.forget()
	}
}

// forget gives back what has been counted.
func (c *Conn) forget() {
	if n := counted(c.head.Swap(0)); n > 0 {
		c.l.heads.Add(-n)
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.l.mu.Lock()
		delete(c.l.open, c)
		c.l.mu.Unlock()
		c.l.byAddress.CompareAndDelete(c.address, c)
		c.forget()
	}
	return c.Conn.Close()
}

// SyscallConn implements syscall.Conn if the connection does.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
