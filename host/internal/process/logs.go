package process

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/printable"
)

const (
	// floodPause slows the reading from a stage that writes more than it may, so that
	// the host spends little time on discarding lines.
	floodPause = time.Millisecond
	// dropReport is the time between two reports of the number of dropped lines.
	dropReport = time.Second
)

// logs takes all output of one process, line by line, and logs it through the
// host's logger.
type logs struct {
	logger hclog.Logger
	tail   tail
	// link is what the program has been started by, and binary the file: a backtrace names the first, and people know the other.
	// Both are set before the first line, if at all.
	link, binary []byte

	mu         sync.Mutex
	budget     float64
	filled     time.Time
	dropped    int
	lastReport time.Time // when the number of dropped lines was last logged
	inPanic    bool

	flooding atomic.Bool
}

func newLogs(logger hclog.Logger) *logs {
	return &logs{logger: logger, budget: bounds.LogBurst, filled: time.Now()}
}

// line logs one line without its end; the slice may be used again afterwards.
func (l *logs) line(line []byte) {
	if len(l.link) > 0 && bytes.Contains(line, l.link) {
		line = bytes.ReplaceAll(line, l.link, l.binary)
	}
	planned := isPlanned(line)
	if !planned && !isDebug(line) {
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
		if planned {
			e.level = hclog.Debug
		}
		l.setPanic(false)
		l.logger.Log(e.level, e.message, e.args...)
		return
	}
	level := hclog.Info
	if planned {
		level = hclog.Debug
	}
	if startsPanic(line) {
		l.setPanic(true)
	}
	if l.panicking() {
		level = hclog.Error
	}
	if text := strings.TrimRight(string(line), " \t\r"); text != "" {
		l.logger.Log(level, printable.Line(text))
	}
}

// admit takes a line from the budget and reports whether there is room for it. dropped, if
// not 0, is the number of dropped lines to log now.
func (l *logs) admit(size int) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.budget = min(bounds.LogBurst, l.budget+now.Sub(l.filled).Seconds()*bounds.LogPerSecond)
	l.filled = now
	cost := float64(1 + size/bounds.LogUnit)
	if l.budget < cost {
		l.dropped++
		l.flooding.Store(true)
		return 0, false
	}
	l.budget -= cost
	l.flooding.Store(false)
	if l.dropped > 0 && now.Sub(l.lastReport) >= dropReport {
		dropped, l.dropped, l.lastReport = l.dropped, 0, now
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
		l.tail.endPanic()
	}
}

// close logs the number of dropped lines that was not logged yet.
func (l *logs) close() {
	l.mu.Lock()
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	if dropped > 0 {
		l.logger.Warn("the stage logs too much, lines were dropped", "lines", dropped)
	}
}

// isPlanned recognizes what libraries of Kubernetes' stages complain of although it is planned for: etcd's client while
// the store is not open yet, and a provider of OIDC that does not respond, which the host's own authenticator reports.
func isPlanned(line []byte) bool {
	return bytes.Contains(line, []byte(`"msg":"retrying of unary invoker failed"`)) ||
		bytes.Contains(line, []byte(`"@message":"oidc authenticator: `))
}

// isDebug recognizes hclog's lines of the levels debug and trace, which no error shows.
func isDebug(line []byte) bool {
	return bytes.HasPrefix(line, []byte("{")) &&
		(bytes.Contains(line, []byte(`"@level":"debug"`)) || bytes.Contains(line, []byte(`"@level":"trace"`)))
}

// writer returns a destination for one stream of output.
func (l *logs) writer() *lineWriter {
	return &lineWriter{line: l.line, pause: func() {
		if l.flooding.Load() {
			time.Sleep(floodPause)
		}
	}}
}
