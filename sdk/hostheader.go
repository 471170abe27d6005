package sdk

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// SetHostHeader sets a header that an answer has for the host alone (see stagev1), before
// the answer begins. Such a header that a handler sets itself is dropped: it may be a copy
// of what a server has sent that the handler proxies to, and that server is not to tell
// the host who has had a request or what to audit.
func SetHostHeader(w http.ResponseWriter, key, value string) {
	x := exchangeOf(w)
	if x == nil {
		w.Header().Set(key, value)
		return
	}
	if x.forHost == nil {
		x.forHost = http.Header{}
	}
	x.forHost.Set(key, value)
}

// ownHeaders replaces the host's headers among those of the answer by the stage's own.
func (x *exchange) ownHeaders(h http.Header) {
	for key := range h {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) {
			delete(h, key)
		}
	}
	for key, values := range x.forHost {
		h[key] = values
	}
	x.writeNotes(h)
}

// ownTrailers does so for the trailers.
func (x *exchange) ownTrailers(h http.Header) {
	for key := range h {
		if strings.HasPrefix(strings.TrimPrefix(key, http.TrailerPrefix), stagev1.HeaderPrefix) {
			delete(h, key)
		}
	}
	x.writeLateNotes(h)
}

// maxHead bounds the head of an answer that a handler writes to the connection itself.
const maxHead = 1 << 20

var errLongHead = errors.New("the head of the answer on the connection that the stage has taken over does not end")

// takenOver is a connection that a handler has taken over. It drops the host's headers from
// the head that the handler writes, except for the values in own.
type takenOver struct {
	net.Conn
	own  []string
	head []byte
	done bool
}

// Write implements net.Conn. What belongs to the head is written when that is complete.
func (c *takenOver) Write(p []byte) (int, error) {
	if c.done {
		return c.Conn.Write(p)
	}
	c.head = append(c.head, p...)
	for !c.done {
		end := bytes.Index(c.head, []byte("\r\n\r\n"))
		if end < 0 && len(c.head) > maxHead {
			return 0, errors.Join(errLongHead, c.Close())
		}
		if end < 0 {
			return len(p), nil
		}
		head := c.head[:end+2]
		c.done = !informational(head)
		out := c.filtered(head)
		if c.head = c.head[end+4:]; c.done {
			out, c.head = append(out, c.head...), nil
		}
		if _, err := c.Conn.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// informational says whether another head follows this one.
func informational(head []byte) bool {
	_, status, _ := bytes.Cut(head, []byte(" "))
	return len(status) >= 3 && status[0] == '1' && string(status[:3]) != "101"
}

func (c *takenOver) filtered(head []byte) []byte {
	out := make([]byte, 0, len(head)+2)
	for line := range bytes.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimRight(string(line), "\r\n"), ":")
		host := len(key) >= len(stagev1.HeaderPrefix) && strings.EqualFold(key[:len(stagev1.HeaderPrefix)], stagev1.HeaderPrefix)
		if !host || slices.Contains(c.own, strings.TrimSpace(value)) {
			out = append(out, line...)
		}
	}
	return append(out, "\r\n"...)
}

// ReadFrom implements io.ReaderFrom, so that the kernel can move the data where it does so
// for the connection.
func (c *takenOver) ReadFrom(r io.Reader) (int64, error) {
	if !c.done {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	return io.Copy(c.Conn, r)
}

// WriteTo implements io.WriterTo, for the same reason.
func (c *takenOver) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }

// CloseWrite ends one direction, where the connection can.
func (c *takenOver) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
