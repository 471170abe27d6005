package h1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/catena-dev/catena/internal/http1"
)

// Sink takes the body of a response on behalf of a client.
type Sink interface {
	io.Writer
	// Flush sends on what has been written. It is called when the stage is not about to
	// send more.
	Flush()
	// Trailer takes a field that follows the body.
	Trailer(f Field)
}

// CopyBody passes the body of resp on, up to its end, and then its trailers. The head of
// the response counts as written and not flushed. Errors are those of dst, as they are, of
// the connection, and of a body that is malformed or breaks off. Large trailers wait for room until ctx ends.
func (c *Conn) CopyBody(ctx context.Context, dst Sink, resp *Response) error {
	b := body{c: c, dst: dst, unflushed: true}
	switch {
	case resp.Chunked:
		return b.copyChunks(ctx, resp.Whole)
	case resp.Length >= 0:
		return b.copyN(resp.Length, false)
	default:
		if err := b.copyN(math.MaxInt64, true); err != io.EOF {
			return err
		}
		return nil
	}
}

// body is the body of a response on its way to a client.
type body struct {
	c   *Conn
	dst Sink
	// unflushed: something has been written since the last flush.
	unflushed bool
	// heldBack is what the client's server may hold of it.
	heldBack int
}

// copyN passes on n bytes, see fill for what is a stream.
func (b *body) copyN(n int64, stream bool) error {
	for n > 0 {
		p := b.c.in.Buffered()
		if len(p) == 0 {
			if err := b.fill(stream); err != nil {
				return err
			}
			continue
		}
		if int64(len(p)) > n {
			p = p[:n]
		}
		if _, err := b.dst.Write(p); err != nil {
			return err
		}
		b.unflushed = stream || len(p) < bulk
		n -= int64(len(p))
		b.c.in.Discard(len(p))
	}
	return nil
}

// bulk is the size from which on a write is not held back by any server's buffer.
const bulk = 16 << 10

// flushDelay is how long the rest of a response of known length may be on its way
// before what has come of it is flushed. It saves a flush when the stage's server
// writes head and body one after the other.
const flushDelay = 2 * time.Millisecond

// fill receives more. If it has to wait for that, it first flushes what has been
// written to the client: at once if the response is a stream.
func (b *body) fill(stream bool) error {
	if !b.unflushed {
		return b.c.in.Fill()
	}
	if stream {
		b.c.in.FlushIdle = b.dst
		err := b.c.in.Fill()
		b.unflushed = b.c.in.FlushIdle != nil
		b.c.in.FlushIdle = nil
		return err
	}
	err := b.c.fillBefore(time.Now().Add(flushDelay))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.dst.Flush()
		b.unflushed = false
		err = b.c.in.Fill()
	}
	return err
}

// copyChunks passes on a chunked body with its trailers.
func (b *body) copyChunks(ctx context.Context, whole *Budget) error {
	var d http1.Chunks
	var cut cutOff
	for {
		p := b.c.in.Buffered()
		ready, partial := len(p), int64(0)
		if whole != nil {
			ready, partial = d.Whole(p)
		}
		n, used, err := d.Decode(p, p[:ready])
		if err := b.writeChunks(p[:n], whole != nil); err != nil {
			return err
		}
		b.c.in.Discard(used)
		if err != nil {
			return err
		}
		if d.Ended() {
			return b.copyTrailers(ctx)
		}
		if partial > 0 {
			err = b.copyChunk(&d, partial, whole)
		} else {
			err = b.fill(true)
		}
		if b.c.cut.Load() {
			err = cut.next(b.c, err, d.Between() && len(b.c.in.Buffered()) == 0)
		}
		if err != nil {
			return err
		}
	}
}

// copyTrailers passes on what follows the last chunk.
func (b *body) copyTrailers(ctx context.Context) error {
	for read := 0; ; {
		if len(b.c.in.Buffered()) == 0 {
			if err := b.fill(true); err != nil {
				return b.c.cutOr(err)
			}
		}
		line, err := b.c.until(ctx, "\r\n", MaxHead-read)
		if read += len(line); err == nil && read > bufferSize {
			err = b.c.reserve(ctx)
		}
		if errors.Is(err, ErrNoRoom) {
			return fmt.Errorf("%w for its trailers", err)
		}
		if err != nil {
			return b.c.cutOr(err)
		}
		line = strings.TrimSuffix(line, "\r\n")
		if line == "" {
			b.c.settle(read)
			return nil
		}
		f, err := http1.ParseField(line)
		if err != nil {
			return err
		}
		b.dst.Trailer(f)
	}
}
