package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
)

// Buffers are buffers of one size.
type Buffers struct {
	size int
	pool sync.Pool
}

// NewBuffers returns buffers of size bytes.
func NewBuffers(size int) *Buffers {
	b := &Buffers{size: size}
	b.pool.New = func() any {
		p := make([]byte, size)
		return &p
	}
	return b
}

// Get returns a buffer, which may have been used before.
func (b *Buffers) Get() *[]byte { return b.pool.Get().(*[]byte) }

// Put gives a buffer back.
func (b *Buffers) Put(p *[]byte) { b.pool.Put(p) }

// Receiver receives from a socket. It holds a buffer only while there is something in it, so that a connection on which
// nothing comes costs no memory.
type Receiver struct {
	// FlushIdle, if set, is flushed once when nothing has come and Fill is about to wait.
	FlushIdle interface{ Flush() }

	raw     syscall.RawConn
	buffers *Buffers
	// buf[start:end] is received and not yet consumed; buf is nil if that is empty.
	buf        *[]byte
	start, end int
	// receive and exchange are readFD and exchangeFD as function values; err is their result, and unsent what is left
	// of what Exchange sends.
	receive, exchange func(fd uintptr) bool
	err               error
	unsent            []byte
	// ended is what Exchange has found instead of a response; the next Fill returns it.
	ended error
}

// Init makes the Receiver that of a socket.
func (r *Receiver) Init(socket syscall.Conn, buffers *Buffers) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	r.raw, r.buffers, r.receive, r.exchange = raw, buffers, r.readFD, r.exchangeFD
	return nil
}

// Raw returns the socket.
func (r *Receiver) Raw() syscall.RawConn { return r.raw }

// Buffered returns what has been received and not consumed. It is valid until the next call of another method.
func (r *Receiver) Buffered() []byte {
	if r.buf == nil {
		return nil
	}
	return (*r.buf)[r.start:r.end]
}

// Discard consumes the first n bytes of what is buffered.
func (r *Receiver) Discard(n int) {
	r.start += n
	if r.start == r.end {
		r.start, r.end = 0, 0
		if r.buf != nil {
			r.buffers.Put(r.buf)
			r.buf = nil
		}
	}
}

// Fill receives more and appends it to what is buffered, of which there must be less than a buffer takes. It returns
// io.EOF when the other end has been closed.
func (r *Receiver) Fill() error {
	if r.buf != nil && r.end == len(*r.buf) {
		r.end = copy(*r.buf, r.Buffered())
		r.start = 0
	}
	if err := r.ended; err != nil {
		r.ended = nil
		return err
	}
	r.err = nil
	if err := r.raw.Read(r.receive); err != nil {
		return err
	}
	return r.err
}

// Exchange sends p to an other end that is silent until then, and receives what it sends next: it does as Write and
// Fill, but does not look for a response before there can be one. It returns how much of p has been sent, all of it if
// there is no error; that nothing could be received is the next Fill's error. With less than p and no error, the rest
// is to be written by the caller, since the socket takes no more at once.
func (r *Receiver) Exchange(p []byte) (n int, err error) {
	r.unsent, r.err = p, nil
	err = r.raw.Read(r.exchange)
	if err == nil {
		err = r.err
	}
	n = len(p) - len(r.unsent)
	r.unsent = nil
	if n == len(p) {
		r.ended, err = err, nil
	}
	return n, err
}

// exchangeFD sends, and reads when it is called again. The runtime has forgotten what has come earlier before it calls
// this first: what comes later ends the wait.
func (r *Receiver) exchangeFD(fd uintptr) (done bool) {
	if len(r.unsent) == 0 {
		return r.readFD(fd)
	}
	n, err := syscall.Write(int(fd), r.unsent)
	for err == syscall.EINTR {
		n, err = syscall.Write(int(fd), r.unsent)
	}
	if err != nil && err != syscall.EAGAIN {
		r.err = fmt.Errorf("write: %w", err)
		return true
	}
	r.unsent = r.unsent[max(n, 0):]
	return len(r.unsent) > 0
}

// readFD reads once. It is called with the descriptor, again and again while it
// returns false, each time when the descriptor may have become readable.
func (r *Receiver) readFD(fd uintptr) (done bool) {
	if r.buf == nil {
		r.buf = r.buffers.Get()
	}
	free := (*r.buf)[r.end:]
	n, err := syscall.Read(int(fd), free)
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), free)
	}
	if n > 0 {
		r.end += n
		return true
	}
	r.Discard(0)
	switch err {
	case nil:
		r.err = io.EOF
	case syscall.EAGAIN:
		if f := r.FlushIdle; f != nil {
			r.FlushIdle = nil
			f.Flush()
		}
		return false // what has come in the meantime ends the wait at once
	default:
		r.err = fmt.Errorf("read: %w", err)
	}
	return true
}

// ErrTooLong is in the errors of Until.
var ErrTooLong = errors.New("too long")

// Until consumes and returns what comes up to and including the delimiter. More than limit bytes are ErrTooLong. What
// is longer than a buffer is kept elsewhere: full is called before that, each time that the buffer is full, and what it
// returns ends the call if it is an error.
func (r *Receiver) Until(delim string, limit int, full func() error) (string, error) {
	var earlier strings.Builder
	for searched := 0; ; {
		p := r.Buffered()
		if i := bytes.Index(p[searched:], []byte(delim)); i >= 0 {
			n := searched + i + len(delim)
			if earlier.Len()+n > limit {
				return "", ErrTooLong
			}
			earlier.Write(p[:n])
			r.Discard(n)
			return earlier.String(), nil
		}
		if earlier.Len()+len(p) > limit {
			return "", ErrTooLong
		}
		// A delimiter may have begun in the last bytes: these stay.
		searched = max(0, len(p)-len(delim)+1)
		if len(p) == r.buffers.size {
			if err := full(); err != nil {
				return "", err
			}
			earlier.Write(p[:searched])
			r.Discard(searched)
			searched = 0
		}
		if err := r.Fill(); err != nil {
			return "", err
		}
	}
}
