package process

import (
	"bytes"
	"sync"

	"github.com/catena-dev/catena/host/internal/printable"
)

const (
	tailLines = 10
	tailWidth = 512
)

// tail keeps what an error about a stage shows of its output: the last lines, or the first
// lines of a panic. It allocates once.
type tail struct {
	mu       sync.Mutex
	lines    [tailLines][]byte
	next     int // total number of lines kept since reset
	panicked bool
}

// add copies a line.
func (t *tail) add(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if startsPanic(line) && !t.panicked {
		t.panicked, t.next = true, 0
	}
	if t.panicked && t.next == tailLines {
		return
	}
	i := t.next % tailLines
	t.lines[i] = append(t.lines[i][:0], line[:min(len(line), tailWidth)]...)
	t.next++
}

// endPanic is called when the process has survived a panic.
func (t *tail) endPanic() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.panicked = false
}

// text returns the lines, the oldest first.
func (t *tail) text() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for i := max(0, t.next-tailLines); i < t.next; i++ {
		line := t.lines[i%tailLines]
		if e, ok := parseLine(line); ok {
			out = append(out, e.String())
		} else {
			out = append(out, printable.Line(string(line)))
		}
	}
	return out
}

// startsPanic recognizes the first line of the Go runtime's output before it ends a process.
func startsPanic(line []byte) bool {
	for _, prefix := range []string{"panic: ", "fatal error: ", "runtime: goroutine stack exceeds"} {
		if bytes.HasPrefix(line, []byte(prefix)) {
			return true
		}
	}
	return false
}
