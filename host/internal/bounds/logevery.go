package bounds

import (
	"sync"
	"time"
)

const (
	// LogPause is the least time between two lines about the same bound of a stage, or of a client.
	LogPause = 10 * time.Second
	// logSubjects bounds what a LogEvery remembers.
	logSubjects = 1000
)

// LogEvery says when something that can happen again and again is to be logged: LogPause after the line before. The
// zero value is ready, and Due may be called concurrently.
type LogEvery struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Due reports whether there is to be a line about something, which counts as logged then. It is left out while there
// are too many others.
func (l *LogEvery) Due(what string) bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.last[what]; ok && now.Sub(at) < LogPause {
		return false
	}
	if len(l.last) == logSubjects {
		l.forget(now)
	}
	if len(l.last) == logSubjects {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[what] = now
	return true
}

// forget forgets those of which there may be another line.
func (l *LogEvery) forget(now time.Time) {
	for what, at := range l.last {
		if now.Sub(at) >= LogPause {
			delete(l.last, what)
		}
	}
}
