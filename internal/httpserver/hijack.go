package httpserver

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// Hijack implements http.Hijacker. The connection is the handler's from then on, without deadlines, and behind a response that has
// begun: a handler may write a 101 and take the connection over then.
func (w *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c := w.x.conn
	switch {
	case w.Refused():
		return nil, nil, ErrDeclined
	case c.hijacked:
		return nil, nil, http.ErrHijacked
	case w.done:
		return nil, nil, errDone
	}
	c.hold.mu.Lock()
	defer c.hold.mu.Unlock()
	begun := w.status != 0
	if begun {
		w.begin(nil)
		_ = w.push(nil)
	} else if w.expectation.cease(); w.Owner != nil {
		w.Owner.Head(w.header)
	}
	w.release()
	c.hijacked = true
	c.server.hangups.end(c)
	c.server.forget(c)
	in := w.x.body.takeOver(c)
	_ = c.socket.SetDeadline(time.Time{})
	conn := c.socket
	if w.Owner != nil {
		conn = w.Owner.Hijacked(conn, w.header, begun)
	}
	return conn, bufio.NewReadWriter(in, bufio.NewWriter(conn)), nil
}

// source is where a body comes from: the receiver of its connection, or a takenOver.
type source interface {
	Buffered() []byte
	Discard(n int)
	Fill() error
	Until(delim string, limit int, full func() error) (string, error)
}

// takenOver is what the handler reads from that has taken a connection over. What it has not read of the request's body, it may
// still read as such, as with net/http.
type takenOver struct{ *bufio.Reader }

// takeOver returns what is read from a connection from now on: first what has been received.
func (b *body) takeOver(c *conn) *bufio.Reader {
	if !b.mu.TryLock() { // a reader waits for more of the body
		_ = c.socket.SetReadDeadline(time.Unix(1, 0))
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	received := c.in.Buffered()
	in := bufio.NewReaderSize(&unread{c, len(received)}, max(len(received), 4<<10))
	_, _ = in.Peek(len(received))
	b.from = takenOver{in}
	return in
}

// unread reads from a connection, first what its receiver has.
type unread struct {
	*conn
	left int
}

func (u *unread) Read(p []byte) (int, error) {
	if u.left == 0 {
		return u.socket.Read(p)
	}
	n := copy(p, u.in.Buffered())
	u.in.Discard(n)
	u.left -= n
	return n, nil
}

func (t takenOver) Buffered() []byte {
	p, _ := t.Peek(t.Reader.Buffered())
	return p
}

func (t takenOver) Discard(n int) { _, _ = t.Reader.Discard(n) }

// Fill appends to what is buffered.
func (t takenOver) Fill() error {
	_, err := t.Peek(t.Reader.Buffered() + 1)
	return err
}

// Until returns a line, which must fit into the buffer.
func (t takenOver) Until(string, int, func() error) (string, error) {
	line, err := t.ReadSlice('\n')
	return string(line), err
}
