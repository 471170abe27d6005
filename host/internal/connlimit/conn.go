package connlimit

import (
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a connection that counts what it makes the server hold, besides the first 8 KiB.
//
// TLS and HTTP are above it. It counts what it reads as a part of a head that is not complete until a request begins,
// and then the head of that request until it ends. Over HTTP/2 heads come while other requests are under way, and so
// do bodies. Of what a known client has sent, that does not count which handlers read of bodies, what bodies under
// way may hold, and as much as was written meanwhile: it has it. Of an unknown client all counts until no
// request is under way, and each request besides the first.
type Conn struct {
	net.Conn
	l       *Listener
	address string
	closed  atomic.Bool

	active atomic.Int64 // requests; negative when the connection is closed for want of room
	last   atomic.Int64 // when one has ended, or the connection was opened
	known  atomic.Bool  // it is a known client's
	shared atomic.Bool  // heads come while requests are under way

	mu      sync.Mutex
	partial int64     // bytes that no request has been made of
	heads   int64     // bytes of the heads of requests
	bodies  int64     // bytes that bodies of requests may hold
	untaken int64     // bytes of bodies that will not be read, as clients do not take the response
	dropped int64     // bytes of bodies that were not read, and that may still come
	left    int64     // what is of no request that may have been executed
	drop    time.Time // when such a body has ended last
	since   time.Time // when left was 0 last
	waited  time.Duration
	held    int64 // of Listener.held
}

const (
	// free is how many bytes of a head are not counted: buffers that every connection has hold them.
	free = 8 << 10
	// A head that is not complete holds up to 64 times its bytes, if each is a field that both sides know (RFC 7541,
	// 6.1), but hardly more than http.Server.MaxHeaderBytes and as much for its fields. Who is known has heads that
	// come at once.
	unknownCost, knownCost, headCost = 64, 16, 2 << 20
	// fieldCost is what a field takes besides its text.
	fieldCost = 32
	// bodyCost is what a body holds at most: the window of a stream, which is kube-apiserver's.
	bodyCost = 256 << 10
	// requestCost is what a request takes until its response is taken, besides its head.
	requestCost = 32 << 10
	// unexplained is how much may not be of bodies before a connection with requests is closed.
	unexplained = 64 << 10
	// overhead is what a short head takes, or frames and records beside a piece of a body.
	overhead = 128
	// table is how long a field may be that is sent by its number in a table (RFC 7540, 6.5.2).
	table = 4096
	// unknownRead is how much is read of an unknown client before it is looked whether there is room.
	unknownRead = 4 << 10
	// fewRequests can an unknown client have at a time on a connection, whatever others hold.
	fewRequests = 4
	// grace is how long a connection may hold what it does. It waits for room by pauses, at most as long as a head
	// may take.
	grace     = time.Second
	waitPause = 100 * time.Millisecond
	waitTime  = 32 * time.Second
	// leaveTime is how long a connection counts that was closed with requests: they have to end.
	leaveTime = time.Second
)

// errHeads is why a connection is closed.
var errHeads = errors.New("what connections hold is too much")

// Read implements net.Conn. It waits for room if the connection holds something already.
func (c *Conn) Read(p []byte) (int, error) {
	if c.l.opts.Heads == 0 {
		return c.Conn.Read(p)
	}
	for waited := time.Duration(0); c.l.full() && c.waits(waited); waited += waitPause {
		if waited > waitTime {
			c.l.refused(Heads)
			return 0, errors.Join(errHeads, c.Close())
		}
		c.l.makeRoom()
		time.Sleep(waitPause)
	}
	if !c.known.Load() {
		p = p[:min(len(p), unknownRead)]
	}
	n, err := c.Conn.Read(p)
	if n > 0 && (c.shared.Load() || c.active.Load() == 0) {
		c.add(int64(n))
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.shared.Load() && c.known.Load() {
		c.add(-int64(n))
	}
	return n, err
}

// add adds bytes to those that no request has been made of.
func (c *Conn) add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 || c.partial > 0 {
		c.partial = max(0, c.partial+n)
		c.recount()
	}
}

// recount has the listener know what counts now. It needs the lock.
func (c *Conn) recount() {
	if c.closed.Load() {
		return
	}
	unknown, left := !c.known.Load(), c.partial-free
	if !unknown {
		left -= c.bodies + c.dropped
	}
	left = max(0, left) + c.untaken
	held := left + c.heads
	switch {
	case unknown:
		held += min(unknownCost*left, headCost) + requestCost*max(0, c.active.Load()-1)
		left = held
	case c.shared.Load():
		held += min(knownCost*left, headCost)
	}
	if c.left == 0 {
		c.since, c.waited = time.Now(), 0
	}
	if held != c.held {
		c.l.held.Add(held - c.held)
	}
	c.held, c.left = held, left
}

// waits reports whether the connection holds what is of no request, and has to wait: it has done so for that long
// already.
func (c *Conn) waits(already time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited = already
	return c.left > 0
}

// closable is what closing the connection gives back, times the time for which it has been held without waiting: 0 if
// that would end a request that may have been executed, of a client that has not sent anything else, or if it has not
// been held for long.
func (c *Conn) closable(now time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := c.active.Load() != 0 && (!c.shared.Load() || c.known.Load() && c.left < unexplained)
	if age := now.Sub(c.since); !busy && age > grace {
		return float64(c.left) * float64(max(1, age-c.waited))
	}
	return 0
}

// Known marks the connection as that of a known client.
func (c *Conn) Known() {
	if c != nil && !c.known.Load() && c.known.CompareAndSwap(false, true) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.recount()
	}
}

// UnknownWaits reports whether there are requests of unknown users.
func (c *Conn) UnknownWaits() bool { return !c.known.Load() && c.active.Load() > 0 }

// Held is what a request makes the server hold.
type Held struct {
	head int64
	body *body
}

// Begin marks that a request has begun: its head has been read. It counts until End. It reports false if the request
// is not to be served, since the connection is being closed for want of room, or is an unknown client's with many. A nil
// Conn does not count.
func (c *Conn) Begin(r *http.Request) (held Held, serve bool) {
	if c == nil {
		return held, true
	}
	active := c.active.Add(1)
	if active <= 0 {
		return held, false
	}
	if c.l.opts.Heads == 0 {
		return held, true
	}
	size, sent := sizeOf(r)
	held.head = max(0, size-free)
	if r.ProtoMajor > 1 {
		c.shared.Store(true)
		if r.ContentLength != 0 {
			held.body = &body{ReadCloser: r.Body, c: c}
			r.Body = held.body
		}
	}
	if !c.known.Load() && active > fewRequests && c.l.full() {
		c.l.makeRoom()
		c.active.Add(-1)
		return Held{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads += held.head
	if held.body != nil {
		c.bodies += bodyCost
	}
	if c.partial = max(0, c.partial-sent); !c.shared.Load() {
		c.partial = 0
	}
	c.forgetDropped()
	c.recount()
	return held, true
}

// forgetDropped accounts for what has come of bodies that were not read. The rest can be on its way until
// the client knows that the request has ended. It needs the lock.
func (c *Conn) forgetDropped() {
	came := min(c.partial, c.dropped)
	c.partial, c.dropped = c.partial-came, c.dropped-came
	if time.Since(c.drop) > grace {
		c.dropped = 0
	}
}

// sizeOf is what the head of a request holds, about, and how much of what has been read it was, at least: more may
// have been read meanwhile.
func sizeOf(r *http.Request) (holds, sent int64) {
	n, literal := len(r.RequestURI), overhead
	if n > table {
		literal += n
	}
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + fieldCost
			if len(v) > table {
				literal += len(v)
			}
		}
	}
	return int64(n), int64(literal)
}

// claim reports whether the connection has no request, and then gets none.
func (c *Conn) claim() bool { return c.active.CompareAndSwap(0, math.MinInt64/2) }

// End marks that the handler of a request has ended. What the request holds counts until the client has taken the
// response, if the client is unknown or has not had its body read: of others the response is all that is left.
func (c *Conn) End(w http.ResponseWriter, held Held) {
	if c == nil {
		return
	}
	stream, ok := w.(interface{ CloseNotify() <-chan bool })
	unread := held.body != nil && !held.body.ended.Load()
	if !ok || !c.shared.Load() || c.known.Load() && !unread {
		c.end(held, 0)
		return
	}
	untaken := int64(0)
	if unread {
		untaken = bodyCost
	}
	c.mu.Lock()
	c.untaken += untaken
	c.recount()
	c.mu.Unlock()
	closed := stream.CloseNotify()
	go func() {
		<-closed
		c.end(held, untaken)
	}()
}

func (c *Conn) end(held Held, untaken int64) {
	c.last.Store(time.Now().UnixNano())
	idle := c.active.Add(-1) == 0
	if c.l.opts.Heads == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads, c.untaken = c.heads-held.head, c.untaken-untaken
	if untaken > 0 {
		c.dropped, c.drop = c.dropped+untaken, time.Now()
	}
	if held.body != nil {
		c.bodies -= bodyCost
	}
	if idle && !c.shared.Load() {
		c.partial = 0
	}
	c.recount()
}

// body is one of a request, of which what has been read is held no more.
type body struct {
	io.ReadCloser
	c     *Conn
	ended atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	if n > 0 && b.c.known.Load() {
		b.c.add(-int64(n) - overhead)
	}
	return n, err
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.l.mu.Lock()
		delete(c.l.open, c)
		c.l.mu.Unlock()
		c.l.byAddress.CompareAndDelete(c.address, c)
		c.leave()
	}
	return c.Conn.Close()
}

// leave gives back what has been counted, a little later if there are requests.
func (c *Conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.held
	c.held, c.left = 0, 0
	if n == 0 || c.active.Load() <= 0 {
		c.l.held.Add(-n)
		return
	}
	c.l.leaving.Add(n)
	time.AfterFunc(leaveTime, func() {
		c.l.held.Add(-n)
		c.l.leaving.Add(-n)
	})
}

// SyscallConn implements syscall.Conn if the connection does.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
