package h1

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/catena-dev/catena/internal/http1"
)

// MaxChunk is the longest chunk that is passed on as a whole, with what frames it. It is more than etcd takes for an object.
const MaxChunk = 2 << 20

// keptChunk is the size up to which memory for a chunk is used again.
const keptChunk = 256 << 10

var chunkMemory = sync.Pool{New: func() any { return new([]byte) }}

// clientBuffer is what the servers of net/http hold back of a response: what is longer together with that would be cut there.
const clientBuffer = 2 << 10

// writeChunks passes on what has come of a body. If chunks are to be whole, what the client's server holds back of those before goes first.
func (b *body) writeChunks(p []byte, whole bool) error {
	if len(p) == 0 {
		return nil
	}
	if !b.unflushed {
		b.heldBack = 0
	}
	if whole && b.heldBack > 0 && b.heldBack+len(p) > clientBuffer {
		b.dst.Flush()
		b.heldBack = 0
	}
	if len(p) <= clientBuffer {
		b.heldBack += len(p)
	}
	b.unflushed = true
	_, err := b.dst.Write(p)
	return err
}

// copyChunk passes on a chunk of size bytes, with its line and its end, of which a part has come. It waits for the rest
// if there is room, but not for longer than the room may be waited for; what has come goes on its way then.
func (b *body) copyChunk(d *http1.Chunks, size int64, room *Budget) error {
	if size > MaxChunk || !room.TryTake(size) {
		p := b.c.in.Buffered()
		n, used, err := d.Decode(p, p)
		if err := b.writeChunks(p[:n], true); err != nil {
			return err
		}
		b.c.in.Discard(used)
		if err != nil {
			return err
		}
		return b.fill(true)
	}
	taken := size
	defer func() { room.Give(taken) }()
	memory := chunkMemory.Get().(*[]byte)
	defer chunkMemory.Put(memory)
	if int64(cap(*memory)) < size {
		*memory = make([]byte, size)
	}
	chunk, n := *memory, 0
	if len(chunk) > keptChunk {
		*memory = nil
	}
	var err error
	for by := time.Now().Add(room.wait); err == nil; {
		p := b.c.in.Buffered()
		m, used, decoded := d.Decode(chunk[n:], p[:min(int64(len(p)), size)])
		b.c.in.Discard(used)
		n, size, err = n+m, size-int64(used), decoded
		if size == 0 || err != nil {
			break
		}
		err = b.fillBefore(by)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(by) {
			err = nil // it is CutOff's, which waits for the end of a chunk
		}
	}
	if err := b.writeChunks(chunk[:n], true); err != nil {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// fillBefore receives more until a deadline. If it has to wait, it first flushes what has been written to the client.
func (b *body) fillBefore(deadline time.Time) error {
	if b.unflushed {
		b.c.in.FlushIdle = b.dst
	}
	err := b.c.fillBefore(deadline)
	b.unflushed = b.unflushed && b.c.in.FlushIdle != nil
	b.c.in.FlushIdle = nil
	return err
}
