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

// SetHostHeader sets a header of a response that is for the host alone (see stagev1),
// before the response begins. Such a header is dropped if a handler sets it itself: it may
// come from a server that the handler proxies to, which must not decline requests or add
// to the audit log.
func SetHostHeader(w http.ResponseWriter, key, value string) {
	x := exchangeOf(w)
	if x == nil {
		w.Header().Set(key, value)
		return
	}
	if x.hostHeaders == nil {
		x.hostHeaders = http.Header{}
	}
	x.hostHeaders.Set(key, value)
}

// HoldResponse has the beginning of a response, up to 2 KiB, held until the handler returns or flushes, so that the head
// can have what is known only then: f, which may call SetHostHeader, is called before the head is written. It is called
// before the handler begins to respond, and reports whether w is the writer of a stage, or wraps one.
func HoldResponse(w http.ResponseWriter, f func()) bool {
	x := exchangeOf(w)
	if x == nil || x.writer.Begun() {
		return false
	}
	x.beforeHead = f
	x.writer.Hold()
	return true
}

// SetHostTrailer sets a header for the host alone, like SetHostHeader, behind the body of a response that has begun. It gets
// there if the response has no Content-Length.
func SetHostTrailer(w http.ResponseWriter, key, value string) {
	x := exchangeOf(w)
	if x == nil {
		return
	}
	if x.hostTrailers == nil {
		x.hostTrailers = http.Header{}
	}
	x.hostTrailers.Set(http.TrailerPrefix+key, value)
}

// setHostHeaders replaces the headers for the host by those of SetHostHeader.
func (x *exchange) setHostHeaders(h http.Header) {
	for key := range h {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) {
			delete(h, key)
		}
	}
	for key, values := range x.hostHeaders {
		h[key] = values
	}
	x.addNotices(h)
}

// setHostTrailers does the same for the trailers.
func (x *exchange) setHostTrailers(h http.Header) {
	for key := range h {
		if strings.HasPrefix(strings.TrimPrefix(key, http.TrailerPrefix), stagev1.HeaderPrefix) {
			delete(h, key)
		}
	}
	for key, values := range x.hostTrailers {
		h[key] = values
	}
	x.addTrailingNotices(h)
}

// maxHead bounds the head of a response that a handler writes to a hijacked connection.
const maxHead = 1 << 20

var errLongHead = errors.New("the response head on the hijacked connection is too long")

// hijackedConn is a connection that a handler has hijacked. It drops headers for the host
// from the head that the handler writes, except for the values in own, unless the server has written it before (done).
type hijackedConn struct {
	net.Conn
	own  []string
	head []byte
	done bool
}

// Write implements net.Conn. The head is written once it is complete.
func (c *hijackedConn) Write(p []byte) (int, error) {
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
		out := c.filtered(head, c.done)
		if c.head = c.head[end+4:]; c.done {
			out, c.head = append(out, c.head...), nil
		}
		if _, err := c.Conn.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// informational reports whether another head follows this one.
func informational(head []byte) bool {
	_, status, _ := bytes.Cut(head, []byte(" "))
	return len(status) >= 3 && status[0] == '1' && string(status[:3]) != "101"
}

// filtered returns a head as it goes to the host. The last one is whether the handler has written it itself.
func (c *hijackedConn) filtered(head []byte, last bool) []byte {
	out := make([]byte, 0, len(head)+2)
	for line := range bytes.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimRight(string(line), "\r\n"), ":")
		host := len(key) >= len(stagev1.HeaderPrefix) && strings.EqualFold(key[:len(stagev1.HeaderPrefix)], stagev1.HeaderPrefix)
		if !host || slices.Contains(c.own, strings.TrimSpace(value)) {
			out = append(out, line...)
		}
	}
	if last {
		out = append(out, stagev1.HeaderRaw+": true\r\n"...)
	}
	return append(out, "\r\n"...)
}

// ReadFrom implements io.ReaderFrom, so that the kernel copies the data where the
// connection allows it.
func (c *hijackedConn) ReadFrom(r io.Reader) (int64, error) {
	if !c.done {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	return io.Copy(c.Conn, r)
}

// WriteTo implements io.WriterTo, for the same reason.
func (c *hijackedConn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }

// CloseWrite shuts down the writing side, where the connection can.
func (c *hijackedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
