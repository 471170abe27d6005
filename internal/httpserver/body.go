package httpserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/catena-dev/catena/internal/http1"
)

// mostUnread is how much of a body that the handler has not read is received, so that the connection can take another request. It is
// that of net/http.
const mostUnread = 256 << 10

// direct is the length of a read from which on it goes into the reader's buffer.
const direct = 4 << 10

// body is the body of a request. Handlers may read it from any goroutine, one at a time.
type body struct {
	x *exchange

	mu     sync.Mutex
	from   source
	left   int64 // of a body with a length
	chunks *http1.Chunks
	err    error // io.EOF at the end

	// ended is set when the body has been read to its end, and closed when later reads are to fail.
	ended, closed atomic.Bool
	// touched is set when the handler has read from it.
	touched atomic.Bool
}

func (b *body) init(x *exchange) {
	b.x, b.from, b.left = x, &x.conn.in, x.length
	if x.length < 0 {
		b.chunks = &http1.Chunks{}
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.touched.Store(true)
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	expectation := &b.x.response.expectation
	expectation.ask(b.x.conn.socket)
	b.mu.Lock()
	defer b.mu.Unlock()
	_, taken := b.from.(takenOver)
	if b.closed.Load() || !expectation.sends() && !taken { // what has not been asked for does not come any more
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

func (b *body) read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if b.chunks != nil {
		n, err = b.readChunks(p)
	} else {
		n, err = b.readLength(p)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err // the handler may set another one
	}
	b.err = err
	if err == io.EOF {
		b.ended.Store(true)
		b.x.bodyEnded()
	}
	return n, err
}

func (b *body) readLength(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	var n int
	var err error
	if len(b.from.Buffered()) == 0 && len(p) >= direct {
		n, err = b.x.conn.socket.Read(p)
	} else {
		if len(b.from.Buffered()) == 0 {
			err = b.from.Fill()
		}
		n = copy(p, b.from.Buffered())
		b.from.Discard(n)
	}
	if b.left -= int64(n); b.left == 0 {
		return n, io.EOF
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *body) readChunks(p []byte) (int, error) {
	for {
		n, used, err := b.chunks.Decode(p, b.from.Buffered())
		b.from.Discard(used)
		if err == nil && b.chunks.Ended() {
			if err = b.readTrailers(); err == nil {
				err = io.EOF
			}
		}
		if n > 0 || err != nil {
			return n, err
		}
		if err := b.from.Fill(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
}

// mostTrailers is the longest that the trailers of a request may be, in bytes. It is more than net/http takes.
const mostTrailers = 64 << 10

// readTrailers reads what follows the last chunk.
func (b *body) readTrailers() error {
	for left := mostTrailers; ; {
		line, err := b.from.Until("\r\n", left, longHead)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		left -= len(line)
		line = strings.TrimSuffix(line, "\r\n")
		if line == "" {
			return nil
		}
		field, err := http1.ParseField(line)
		if err != nil {
			return err
		}
		r := b.x.request
		if r.Trailer == nil {
			r.Trailer = http.Header{}
		}
		r.Trailer[field.Key] = append(r.Trailer[field.Key], field.Value)
	}
}

// Close implements io.Closer. It reads the rest of a body that is not long.
func (b *body) Close() error {
	if b.x.response.expectation.sends() {
		b.settle()
	}
	b.end()
	return nil
}

// end has later reads fail.
func (b *body) end() { b.closed.Store(true) }

// settle reads the rest of the body, and reports whether the next request begins after it. It does not read what
// another goroutine is reading.
func (b *body) settle() bool {
	if b.ended.Load() {
		b.closed.Store(true)
		return true
	}
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	if b.err == nil && (b.chunks != nil || b.left <= mostUnread) {
		b.discardRest()
	}
	if b.err != nil {
		b.closed.Store(true)
	}
	return b.err == io.EOF
}

func (b *body) discardRest() {
	buf := buffers.Get()
	defer buffers.Put(buf)
	for n := 0; b.err == nil && n <= mostUnread; {
		m, err := b.read(*buf)
		if n += m; err != nil {
			return
		}
	}
}
