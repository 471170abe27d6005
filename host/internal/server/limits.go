package server

import (
	"sync"
	"time"
)

// limitLogPause is the time between two lines about one limit, or one refusal, of one stage.
const limitLogPause = 10 * time.Second

// limitLog says when the limits of the host that a stage has come to, and what it was refused,
// were logged last.
type limitLog struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due reports whether a line about a limit of a stage is to be logged.
func (l *limitLog) due(stage, limit string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := stage + " " + limit
	if at, ok := l.last[key]; ok && now.Sub(at) < limitLogPause {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[key] = now
	return true
}

// limited counts a request that has failed because its stage has come to a limit of the host,
// and logs that now and then.
func (r *routing) limited(stage, limit, reason string) {
	r.front.Metrics().ObserveLimit(stage, limit)
	if !r.limits.due(stage, limit, time.Now()) {
		return
	}
	args := []any{"stage", stage, "limit", limit}
	if reason != "" {
		args = append(args, "reason", reason)
	}
	r.log.Warn("requests fail because the stage has come to a limit of the host", args...)
}
