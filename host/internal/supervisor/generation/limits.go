package generation

import (
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// limitLog says when something that a stage can do again and again was logged. One goroutine uses it at a time.
type limitLog struct{ last map[string]time.Time }

// due reports whether there is to be a line about something.
func (l *limitLog) due(what string, now time.Time) bool {
	if at, ok := l.last[what]; ok && now.Sub(at) < bounds.LogPause {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[what] = now
	return true
}
