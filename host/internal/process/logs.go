package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	// A stage may log so many lines, at once and per second. What is more is
	// dropped and counted. A long line counts as several.
	logBurst     = 10000
	logPerSecond = 2000
	logLineUnit  = 256
	// maxLogLine is the longest line; of a longer one, the rest is dropped.
	maxLogLine = 64 << 10
	// floodPause slows the reading of a stage that writes more than it may, so that
	// the host spends little time on throwing it away. The stage waits meanwhile.
	floodPause = time.Millisecond
	// dropReport is the time between two lines that say how many were dropped.
	dropReport = time.Second
)

// logs takes all output of one process, line by line, and logs it through the
// host's logger.
type logs struct {
	logger hclog.Logger
	tail   tail

	mu      sync.Mutex
	budget  float64
	filled  time.Time
	dropped int
	told    time.Time // when the number of dropped lines was logged last
	inPanic bool

	flooding atomic.Bool
}

func newLogs(logger hclog.Logger) *logs {
	return &logs{logger: logger, budget: logBurst, filled: time.Now()}
}

// line logs one line without its end; the slice may be used again afterwards.
func (l *logs) line(line []byte) {
	if !isDebug(line) {
		l.tail.add(line)
	}
	dropped, ok := l.admit(len(line))
	if !ok {
		return
	}
	if dropped > 0 {
		l.logger.Warn("the stage logs too much, lines were dropped", "lines", dropped)
	}
	if e, ok := parseLine(line); ok {
		l.setPanic(false)
		l.logger.Log(e.level, e.message, e.args...)
		return
	}
	level := hclog.Info
	if startsPanic(line) {
		l.setPanic(true)
	}
	if l.panicking() {
		level = hclog.Error
	}
	if text := strings.TrimRight(string(line), " \t\r"); text != "" {
		l.logger.Log(level, printable(text))
	}
}

// admit takes a line from the budget. If it fits, dropped is how many before it did not,
// if that is to be logged now.
func (l *logs) admit(size int) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.budget = min(logBurst, l.budget+now.Sub(l.filled).Seconds()*logPerSecond)
	l.filled = now
	cost := float64(1 + size/logLineUnit)
	if l.budget < cost {
		l.dropped++
		l.flooding.Store(true)
		return 0, false
	}
	l.budget -= cost
	l.flooding.Store(false)
	if l.dropped > 0 && now.Sub(l.told) >= dropReport {
		dropped, l.dropped, l.told = l.dropped, 0, now
	}
	return dropped, true
}

func (l *logs) panicking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inPanic
}

func (l *logs) setPanic(on bool) {
	l.mu.Lock()
	changed := l.inPanic != on
	l.inPanic = on
	l.mu.Unlock()
	if changed && !on {
		l.tail.calm()
	}
}

// close reports what was dropped last.
func (l *logs) close() {
	l.mu.Lock()
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	if dropped > 0 {
		l.logger.Warn("the stage logs too much, lines were dropped", "lines", dropped)
	}
}

// isDebug recognises hclog's lines that say too little to be shown with an error.
func isDebug(line []byte) bool {
	return bytes.HasPrefix(line, []byte("{")) &&
		(bytes.Contains(line, []byte(`"@level":"debug"`)) || bytes.Contains(line, []byte(`"@level":"trace"`)))
}

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
		w.line(part[:min(len(part), maxLogLine)])
	default:
		room := maxLogLine - len(w.buf)
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

// writer returns a destination for one stream of output.
func (l *logs) writer() *lineWriter {
	return &lineWriter{line: l.line, pause: func() {
		if l.flooding.Load() {
			time.Sleep(floodPause)
		}
	}}
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
