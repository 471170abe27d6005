package relay

import (
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// added says whether a header of an answer is added to those that the filters in
// front of the relay have set, instead of replacing them.
func added(key string) bool {
	switch key {
	case "Warning", "Vary", "Set-Cookie", "Link":
		return true
	}
	return false
}

// writeHeaders puts the headers of the answer into those of the client's.
func (x *exchange) writeHeaders(a *answer) {
	h := x.w.Header()
	var connection []string
	typed, skip := false, 0
	for _, f := range a.fields {
		switch {
		case f.key == "Connection":
			connection = append(connection, f.value)
		case f.key == "Content-Type":
			typed = true
		}
		if hopByHop(f.key) || internal(f.key) {
			skip++
		} else if !added(f.key) && h[f.key] != nil {
			delete(h, f.key)
		}
	}
	values := make([]string, 0, len(a.fields)-skip)
	for _, f := range a.fields {
		switch {
		case internal(f.key):
			x.tell(f)
		case f.key == "Trailer":
			announce(h, f.value)
		case hopByHop(f.key), connection != nil && listed(connection, f.key):
		case h[f.key] != nil:
			h[f.key] = append(h[f.key], f.value)
		default:
			values = append(values, f.value)
			h[f.key] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	if !typed {
		h["Content-Type"] = nil // keeps the server from guessing
	}
}

// tell hands an internal header of an answer to the carrier.
func (x *exchange) tell(f field) {
	if x.chain.config.Carrier != nil && hasPrefixFold(f.key, header.Prefix) && f.key != header.Decline {
		x.chain.config.Carrier.ResponseHeader(x.r, x.stage, f.key, f.value)
	}
}

// announce adds the names of the trailers that a client may see.
func announce(h http.Header, names string) {
	headerList([]string{names}, func(key string) bool {
		if trailerAllowed(key) {
			h.Add("Trailer", key)
		}
		return true
	})
}

// writeBody passes on the body of the answer, up to its end.
func (x *exchange) writeBody(c *conn, a *answer) error {
	switch {
	case x.r.Method == http.MethodHead || !bodyAllowed(a.status):
		return nil
	case a.chunked:
		return x.writeChunks(c)
	case a.length >= 0:
		return x.writeN(c, a.length, false)
	default:
		if err := x.writeN(c, math.MaxInt64, true); err != io.EOF {
			return err
		}
		return nil
	}
}

// errClientGone says that the client's end of the exchange takes no more.
var errClientGone = errors.New("the client takes no more")

// writeN passes on n bytes, see fill for what is a stream.
func (x *exchange) writeN(c *conn, n int64, stream bool) error {
	for n > 0 {
		p := c.buffered()
		if len(p) == 0 {
			if err := x.fill(c, stream); err != nil {
				return err
			}
			continue
		}
		if int64(len(p)) > n {
			p = p[:n]
		}
		if _, err := x.w.Write(p); err != nil {
			return errClientGone
		}
		x.unflushed = stream || len(p) < bulk
		n -= int64(len(p))
		c.discard(len(p))
	}
	return nil
}

// bulk is the size from which on a write is not held back by any server's buffer.
const bulk = 16 << 10

// flushDelay is how long the rest of an answer of known length may be on its way
// before what has come of it is flushed. It saves a flush when the stage's server
// writes head and body one after the other.
const flushDelay = 2 * time.Millisecond

// fill receives more. If it has to wait for that, it first flushes what has been
// written to the client: at once if the answer is a stream.
func (x *exchange) fill(c *conn, stream bool) error {
	if !x.unflushed {
		return c.fill()
	}
	if stream {
		c.dry = x.flushFunc
		err := c.fill()
		c.dry = nil
		return err
	}
	err := c.fillBefore(time.Now().Add(flushDelay))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.flush()
		err = c.fill()
	}
	return err
}

func (x *exchange) flush() {
	x.unflushed, x.flushed = false, true
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
		return
	}
	_ = http.NewResponseController(x.w).Flush()
}

// writeChunks passes on a chunked body with its trailers.
func (x *exchange) writeChunks(c *conn) error {
	var d chunks
	length := 0
	for {
		p := c.buffered()
		n, used, err := d.decode(p)
		if n > 0 {
			if _, err := x.w.Write(p[:n]); err != nil {
				return errClientGone
			}
			x.unflushed = true
			length += n
		}
		c.discard(used)
		if err != nil {
			return err
		}
		if d.ended {
			break
		}
		if err := x.fill(c, true); err != nil {
			return err
		}
	}
	if !x.flushed && (x.r.ProtoMajor < 2 || length <= maxSilent) {
		x.flush() // keeps the server from finding out the length
	}
	return x.writeTrailers(c)
}

// maxSilent is the length of an answer, in bytes, up to which a stage's server finds
// out the length if the handler does not flush. The client's server does so for as
// many bytes over HTTP/1.1, and for some more, which come here in chunks, over HTTP/2.
const maxSilent = 2048

// writeTrailers passes on what follows the last chunk.
func (x *exchange) writeTrailers(c *conn) error {
	for left := maxHead; ; {
		if len(c.buffered()) == 0 {
			if err := x.fill(c, true); err != nil {
				return err
			}
		}
		line, err := c.until("\r\n", left)
		if err != nil {
			return err
		}
		left -= len(line)
		line = strings.TrimSuffix(line, "\r\n")
		if line == "" {
			return nil
		}
		f, err := parseField(line)
		if err != nil {
			return err
		}
		if internal(f.key) {
			x.tell(f)
		} else if trailerAllowed(f.key) {
			x.w.Header().Add(http.TrailerPrefix+f.key, f.value)
		}
	}
}
