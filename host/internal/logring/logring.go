// Package logring keeps the latest lines of a log in constant memory, for those who come
// later and for those who follow it.
package logring

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Line is one entry of the log as it was written, with its line feeds.
type Line struct {
	At    time.Time
	Level hclog.Level
	// Source is what logged it.
	Source string
	Text   []byte
}

// Ring holds lines until newer ones take their place. Its methods may be called
// concurrently, and none waits for a reader.
type Ring struct {
	mu sync.Mutex
	// buf has the records from first to next, which only grow: the place of an offset is
	// what remains of its division by the length.
	buf         []byte
	first, next uint64
	// dropped is how many lines have been overwritten.
	dropped uint64
	changed chan struct{} // closed by the next Add; nil without a reader
}

const (
	// headSize is that of the head of a record: time, level, length of the source and of the text.
	headSize = 8 + 1 + 1 + 4
	// maxSource is the length of the longest name of a source.
	maxSource = 255
	// minSize is that of the smallest ring.
	minSize = 1 << 10
)

// New returns a ring of so many bytes, but not of less than 1 KiB. What a line needs besides its text
// counts.
func New(size int) *Ring { return &Ring{buf: make([]byte, max(size, minSize))} }

// Add appends a line, of which it keeps a copy. The end of one that would fill more than half of
// the ring is cut off.
func (r *Ring) Add(l Line) {
	source := l.Source[:min(len(l.Source), maxSource)]
	text := l.Text[:min(len(l.Text), len(r.buf)/2-headSize-len(source))]
	var head [headSize]byte
	binary.BigEndian.PutUint64(head[:], uint64(l.At.UnixNano()))
	head[8], head[9] = byte(l.Level), byte(len(source))
	binary.BigEndian.PutUint32(head[10:], uint32(len(text)))

	r.mu.Lock()
	defer r.mu.Unlock()
	need := uint64(headSize + len(source) + len(text))
	for r.next-r.first+need > uint64(len(r.buf)) {
		_, r.first = r.record(r.first)
		r.dropped++
	}
	r.put(head[:])
	r.put([]byte(source))
	r.put(text)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

func (r *Ring) put(b []byte) {
	for len(b) > 0 {
		n := copy(r.buf[r.next%uint64(len(r.buf)):], b)
		b, r.next = b[n:], r.next+uint64(n)
	}
}

func (r *Ring) get(at uint64, b []byte) []byte {
	for got := 0; got < len(b); {
		got += copy(b[got:], r.buf[(at+uint64(got))%uint64(len(r.buf)):])
	}
	return b
}

// record returns the head of the record at an offset, and the offset of the one after it.
func (r *Ring) record(at uint64) (head [headSize]byte, after uint64) {
	r.get(at, head[:])
	return head, at + headSize + uint64(head[9]) + uint64(binary.BigEndian.Uint32(head[10:]))
}

// Reader reads a ring from its oldest line on. It is for one goroutine.
type Reader struct {
	ring *Ring
	at   uint64
	// seen is how many lines of the log were read or lost.
	seen uint64
}

// Reader returns a reader of the lines that the ring holds and of those to come.
func (r *Ring) Reader() *Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Reader{ring: r, at: r.first, seen: r.dropped}
}

// batch is about how many bytes are copied while the ring is locked.
const batch = 64 << 10

// Next returns lines that were not read yet, and how many were overwritten before they could
// be. If there are no such lines yet, it returns a channel that is closed when there are.
func (r *Reader) Next() (lines []Line, lost uint64, more <-chan struct{}) {
	ring := r.ring
	ring.mu.Lock()
	defer ring.mu.Unlock()
	if r.at < ring.first {
		lost = ring.dropped - r.seen
		r.at, r.seen = ring.first, ring.dropped
	}
	for size := 0; r.at < ring.next && size < batch; r.seen++ {
		head, after := ring.record(r.at)
		source := int(head[9])
		rest := ring.get(r.at+headSize, make([]byte, int(after-r.at)-headSize))
		lines = append(lines, Line{
			At: time.Unix(0, int64(binary.BigEndian.Uint64(head[:]))), Level: hclog.Level(head[8]),
			Source: string(rest[:source]), Text: rest[source:],
		})
		size += len(rest)
		r.at = after
	}
	if len(lines) > 0 || lost > 0 {
		return lines, lost, nil
	}
	if ring.changed == nil {
		ring.changed = make(chan struct{})
	}
	return nil, 0, ring.changed
}
