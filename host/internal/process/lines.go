package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// lineWriter cuts what is written into lines, and calls line for each. The slice is
// valid during the call.
type lineWriter struct {
	line  func([]byte)
	pause func() // called after each Write, may be nil

	mu   sync.Mutex
	buf  []byte
	skip bool // the rest of a line that was too long
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part, after, complete := bytes.Cut(rest, []byte("\n"))
		rest = after
		w.take(part, complete)
	}
	if w.pause != nil {
		w.pause()
	}
	return len(p), nil
}

func (w *lineWriter) take(part []byte, complete bool) {
	switch {
	case w.skip:
		w.skip = !complete
	case complete && len(w.buf) == 0:
		w.line(part[:min(len(part), bounds.LogLine)])
	default:
		room := bounds.LogLine - len(w.buf)
		w.buf = append(w.buf, part[:min(len(part), room)]...)
		if complete || len(part) > room {
			w.emit()
			w.skip = !complete
		}
	}
}

func (w *lineWriter) emit() {
	w.line(w.buf)
	w.buf = w.buf[:0]
}

// flush passes on a last line that has no end.
func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.buf) > 0 {
		w.emit()
	}
}

// copyLines reads a pipe to its end, or until its read deadline and then what is in it.
func copyLines(w *lineWriter, pipe *os.File) {
	if _, err := io.Copy(w, pipe); errors.Is(err, os.ErrDeadlineExceeded) {
		readAvailable(w, pipe)
	}
	w.flush()
}

// maxPipe is the most that a pipe holds: Linux' default of fs.pipe-max-size.
const maxPipe = 1 << 20

// readAvailable copies what a pipe holds, without waiting for more.
func readAvailable(w *lineWriter, pipe *os.File) {
	_ = pipe.SetReadDeadline(time.Time{})
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	_ = raw.Read(func(fd uintptr) bool {
		for total := 0; total < maxPipe; {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 {
				break
			}
			total += n
			_, _ = w.Write(buf[:n])
		}
		return true
	})
}
