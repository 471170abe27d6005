package h1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bufferSize is how much is read from a stage at once. Large reads are what makes
// large responses cheap, and the buffer is held only while there is something in it.
const bufferSize = 128 << 10

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

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
	raw  syscall.RawConn
	// idleSince is when the connection was put into the pool.
	idleSince time.Time

	// buf[start:end] is received and not yet consumed; buf is nil if that is empty.
	buf        *buffer
	start, end int

	// receive is readFD as a function value; err is its result.
	receive func(fd uintptr) bool
	err     error
	// flushIdle, if set, is flushed once when a read has found nothing and is about to wait.
	flushIdle Sink
	// peek is peekFD as a function value; silent is its result.
	peek   func(fd uintptr)
	silent bool
	peeked [1]byte
	// taken is what the present response has taken of Heads; reserved says that it is for the longest head.
	taken    int64
	reserved bool
	// cut is set by CutOff.
	cut atomic.Bool
}

// NewConn returns a Conn on a connection to a stage's socket, which belongs to it from then on.
func NewConn(conn *net.UnixConn) (*Conn, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{conn: conn, raw: raw}
	c.Abort = func() { _ = conn.Close() }
	c.receive = c.readFD
	c.peek = c.peekFD
	return c, nil
}

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) { return c.conn.Write(p) }

// Close closes the connection and gives its buffer back.
func (c *Conn) Close() {
	c.FreeHead()
	_ = c.conn.Close()
	c.discard(c.end - c.start)
}

// buffered returns what has been received and not consumed.
func (c *Conn) buffered() []byte {
	if c.buf == nil {
		return nil
	}
	return c.buf[c.start:c.end]
}

// discard consumes the first n bytes of what is buffered.
func (c *Conn) discard(n int) {
	c.start += n
	if c.start == c.end {
		c.start, c.end = 0, 0
		if c.buf != nil {
			buffers.Put(c.buf)
			c.buf = nil
		}
	}
}

// fill receives more and appends it to what is buffered, of which there must be less
// than bufferSize.
func (c *Conn) fill() error {
	if c.buf != nil && c.end == len(c.buf) {
		c.end = copy(c.buf[:], c.buf[c.start:c.end])
		c.start = 0
	}
	c.err = nil
	if err := c.raw.Read(c.receive); err != nil {
		return err
	}
	return c.err
}

// fillBefore is fill with a deadline, at which it returns os.ErrDeadlineExceeded.
func (c *Conn) fillBefore(deadline time.Time) error {
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	err := c.fill()
	_ = c.conn.SetReadDeadline(time.Time{}) // fails on a closed connection only
	return err
}

// readFD reads once. It is called with the descriptor, again and again while it
// returns false, each time when the descriptor may have become readable.
func (c *Conn) readFD(fd uintptr) (done bool) {
	if c.buf == nil {
		c.buf = buffers.Get().(*buffer)
	}
	n, err := syscall.Read(int(fd), c.buf[c.end:])
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), c.buf[c.end:])
	}
	if n > 0 {
		c.end += n
		return true
	}
	c.discard(0)
	switch err {
	case nil:
		c.err = io.EOF
	case syscall.EAGAIN:
		if s := c.flushIdle; s != nil {
			c.flushIdle = nil
			s.Flush()
		}
		return false // what has come in the meantime ends the wait at once
	default:
		c.err = fmt.Errorf("read: %w", err)
	}
	return true
}

// Silent reports whether the stage has neither closed an idle connection nor sent
// anything on it: only such a connection can take another request.
func (c *Conn) Silent() bool {
	c.silent = false
	return c.raw.Control(c.peek) == nil && c.silent
}

func (c *Conn) peekFD(fd uintptr) {
	_, _, err := syscall.Recvfrom(int(fd), c.peeked[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.silent = err == syscall.EAGAIN
}

var errTooLong = errors.New("too long")

// until consumes and returns what comes up to and including the delimiter. More
// than limit bytes are an error. What is longer than the buffer waits for room, see reserve.
func (c *Conn) until(ctx context.Context, delim string, limit int) (string, error) {
	var earlier strings.Builder
	for searched := 0; ; {
		p := c.buffered()
		if i := bytes.Index(p[searched:], []byte(delim)); i >= 0 {
			n := searched + i + len(delim)
			if earlier.Len()+n > limit {
				return "", errTooLong
			}
			earlier.Write(p[:n])
			c.discard(n)
			return earlier.String(), nil
		}
		if earlier.Len()+len(p) > limit {
			return "", errTooLong
		}
		// A delimiter may have begun in the last bytes: these stay.
		searched = max(0, len(p)-len(delim)+1)
		if len(p) == bufferSize {
			if err := c.reserve(ctx); err != nil {
				return "", err
			}
			earlier.Write(p[:searched])
			c.discard(searched)
			searched = 0
		}
		if err := c.fill(); err != nil {
			return "", err
		}
	}
}
