package h1

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/catena-dev/catena/internal/http1"
)

// bufferSize is how much is read from a stage at once. Large reads are what makes
// large responses cheap, and the buffer is held only while there is something in it.
const bufferSize = 128 << 10

var buffers = http1.NewBuffers(bufferSize)

// copyBuffer is for what comes from a client: it is held while the client is silent.
type copyBuffer [32 << 10]byte

var copyBuffers = sync.Pool{New: func() any { return new(copyBuffer) }}

// Conn is a connection to a stage.
type Conn struct {
	// Abort closes the connection and makes calls that are blocked on it fail. Any
	// goroutine may call it at any time. Close is still needed.
	Abort func()
	// Heads is what large heads of responses are taken from. It is set before the first
	// request.
	Heads *Budget

	conn *net.UnixConn
	in   http1.Receiver
	// idleSince is when the connection was put into the pool.
	idleSince time.Time

	// peek is peekFD as a function value; silent and strayed are its results.
	peek    func(fd uintptr)
	silent  bool
	strayed bool
	peeked  [1]byte
	// taken is what the present response has taken of Heads; reserved reports whether it is for the longest head.
	taken    int64
	reserved bool
	// cut is set by CutOff.
	cut atomic.Bool
}

// NewConn returns a Conn on a connection to a stage's socket, which belongs to it from then on.
func NewConn(conn *net.UnixConn) (*Conn, error) {
	c := &Conn{conn: conn}
	if err := c.in.Init(conn, buffers); err != nil {
		return nil, err
	}
	c.Abort = func() {
		// Close waits for a flush in the middle of a read, which a client may hold up that does not read: the stage is
		// told before.
		_, _ = conn.CloseRead(), conn.CloseWrite()
		_ = conn.Close()
	}
	c.peek = c.peekFD
	return c, nil
}

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) { return c.conn.Write(p) }

// Send writes p, after which the stage responds, and returns when something of the response has come, or nothing will.
// It returns how much of p was written.
func (c *Conn) Send(p []byte) (int, error) {
	n, err := c.in.Exchange(p)
	if err != nil || n == len(p) {
		return n, err
	}
	m, err := c.conn.Write(p[n:])
	return n + m, err
}

// Close closes the connection and gives its buffer back.
func (c *Conn) Close() {
	c.FreeHead()
	_ = c.conn.Close()
	c.in.Discard(len(c.in.Buffered()))
}

// fillBefore receives more until a deadline, at which it returns os.ErrDeadlineExceeded.
func (c *Conn) fillBefore(deadline time.Time) error {
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	err := c.in.Fill()
	_ = c.conn.SetReadDeadline(time.Time{}) // fails on a closed connection only
	return err
}

// Silent reports whether the stage has neither closed an idle connection nor sent
// anything on it: only such a connection can take another request.
func (c *Conn) Silent() bool {
	c.silent = false
	return c.in.Raw().Control(c.peek) == nil && c.silent
}

func (c *Conn) peekFD(fd uintptr) {
	n, _, err := syscall.Recvfrom(int(fd), c.peeked[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.silent, c.strayed = err == syscall.EAGAIN, err == nil && n > 0
}

// Strayed reports whether the stage has sent something on a connection that was idle when it had responded: it is asked
// instead of Silent, or after it.
func (c *Conn) Strayed() bool {
	c.strayed = false
	return c.in.Raw().Control(c.peek) == nil && c.strayed
}

// until consumes and returns what comes up to and including the delimiter. More
// than limit bytes are an error. What is longer than the buffer waits for room, see reserve.
func (c *Conn) until(ctx context.Context, delim string, limit int) (string, error) {
	return c.in.Until(delim, limit, func() error { return c.reserve(ctx) })
}
