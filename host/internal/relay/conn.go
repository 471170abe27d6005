package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// bufferSize is how much is read from a stage at once. Large reads are what makes
// large answers cheap, and the buffer is held only while there is something in it.
const bufferSize = 128 << 10

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// copyBuffer is for what comes from a client: it is held while the client is silent.
type copyBuffer [32 << 10]byte

var copyBuffers = sync.Pool{New: func() any { return new(copyBuffer) }}

// conn is a connection to a stage. It holds a buffer only while there is
// something in it: waiting for a stage costs no memory.
type conn struct {
	*net.UnixConn
	raw syscall.RawConn
	// abort closes the connection; it may be called at any time by anybody.
	abort func()
	// used says that an exchange has been completed on it before.
	used bool
	// idleSince is when the connection was put into the pool.
	idleSince time.Time

	// buf[start:end] is received and not yet consumed; buf is nil if that is empty.
	buf        *buffer
	start, end int

	// receive is readFD as a function value; err is its result.
	receive func(fd uintptr) bool
	err     error
	// dry, if set, is called once when a read has found nothing and is about to wait.
	dry func()
	// clean is peekFD as a function value; isClean is its result.
	clean   func(fd uintptr)
	isClean bool
	peeked  [1]byte
}

func newConn(c *net.UnixConn) (*conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	sc := &conn{UnixConn: c, raw: raw}
	sc.abort = func() { _ = c.Close() }
	sc.receive = sc.readFD
	sc.clean = sc.peekFD
	return sc, nil
}

// release closes the connection and gives its buffer back.
func (c *conn) release() {
	_ = c.Close()
	c.discard(c.end - c.start)
}

// buffered returns what has been received and not consumed.
func (c *conn) buffered() []byte {
	if c.buf == nil {
		return nil
	}
	return c.buf[c.start:c.end]
}

// discard consumes the first n bytes of what is buffered.
func (c *conn) discard(n int) {
	c.start += n
	if c.start == c.end {
		c.start, c.end = 0, 0
		if c.buf != nil {
			buffers.Put(c.buf)
			c.buf = nil
		}
	}
}

// fill receives more, behind what is buffered, of which there must be less than
// bufferSize.
func (c *conn) fill() error {
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
func (c *conn) fillBefore(deadline time.Time) error {
	if err := c.SetReadDeadline(deadline); err != nil {
		return err
	}
	err := c.fill()
	_ = c.SetReadDeadline(time.Time{}) // fails on a closed connection only
	return err
}

// readFD reads once. It is called with the descriptor, again and again while it
// returns false, each time when the descriptor may have become readable.
func (c *conn) readFD(fd uintptr) (done bool) {
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
		if f := c.dry; f != nil {
			c.dry = nil
			f()
		}
		return false // what has come in the meantime ends the wait at once
	default:
		c.err = fmt.Errorf("read: %w", err)
	}
	return true
}

// fresh says whether an idle connection can be used: its stage has neither closed
// it nor sent anything.
func (c *conn) fresh() bool {
	c.isClean = false
	return c.raw.Control(c.clean) == nil && c.isClean
}

func (c *conn) peekFD(fd uintptr) {
	_, _, err := syscall.Recvfrom(int(fd), c.peeked[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.isClean = err == syscall.EAGAIN
}

var errTooLong = errors.New("too long")

// until consumes and returns what comes up to and including the delimiter. More
// than limit bytes are an error.
func (c *conn) until(delim string, limit int) (string, error) {
	var earlier []byte
	for searched := 0; ; {
		p := c.buffered()
		if i := bytes.Index(p[searched:], []byte(delim)); i >= 0 {
			n := searched + i + len(delim)
			if len(earlier)+n > limit {
				return "", errTooLong
			}
			text := string(p[:n])
			if earlier != nil {
				text = string(append(earlier, p[:n]...))
			}
			c.discard(n)
			return text, nil
		}
		if len(earlier)+len(p) > limit {
			return "", errTooLong
		}
		// A delimiter may have begun in the last bytes: these stay.
		searched = max(0, len(p)-len(delim)+1)
		if len(p) == bufferSize {
			earlier = append(earlier, p[:searched]...)
			c.discard(searched)
			searched = 0
		}
		if err := c.fill(); err != nil {
			return "", err
		}
	}
}
