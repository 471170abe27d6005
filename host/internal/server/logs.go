package server

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/kubelog"
	"github.com/catena-dev/catena/host/internal/store"
)

// logs are the logger of the host, and that of the code that it logs for: the stages,
// Kubernetes' code in the host and etcd. Each has a level of its own.
type logs struct {
	host, stages hclog.Logger
	// dataDir is the lock of the data directory while the server holds it.
	dataDir atomic.Pointer[store.DirLock]
	// interrupted is set when the server was asked to end before it was ready.
	interrupted atomic.Bool
	// failed is set when the server ends with an error before it was ready.
	failed atomic.Bool
}

func newLogs(c config.Log) *logs {
	var output sync.Mutex
	l := &logs{}
	logger := func(level string, exclude func(hclog.Level, string, ...any) bool) hclog.Logger {
		o := logOptions(c.Format)
		o.Level, o.Mutex, o.Exclude = hclog.LevelFromString(level), &output, exclude
		return hclog.New(&o)
	}
	l.host, l.stages = logger(c.Level, l.startFailed), logger(c.StageLevel, l.isConsequence)
	return l
}

// NewLogger returns a logger like that of the host, for what comes before Run and after it.
func NewLogger(c config.Log) hclog.Logger {
	o := logOptions(c.Format)
	o.Level = hclog.LevelFromString(c.Level)
	return hclog.New(&o)
}

// logOptions are those of a logger with that format.
func logOptions(format string) hclog.LoggerOptions {
	o := hclog.LoggerOptions{Output: os.Stderr, JSONFormat: format == config.JSONLog}
	switch format {
	case config.KlogLog:
		o = kubelog.Text(os.Stderr, os.Getpid())
	case config.KlogJSONLog:
		o = kubelog.JSON(os.Stderr)
	}
	o.Name = "catena"
	return o
}

// isConsequence reports whether a message is about what has failed because the start was
// interrupted, has failed, or the data directory is lost. The server says which of these it
// was: it needs no other errors.
func (l *logs) isConsequence(level hclog.Level, _ string, _ ...any) bool {
	if level >= hclog.Warn && (l.interrupted.Load() || l.failed.Load()) {
		return true
	}
	lock := l.dataDir.Load()
	return level >= hclog.Warn && lock != nil && lock.Check() != nil
}

// startFailed reports whether a message is a problem of the end after a start that failed.
// Run returns the cause.
func (l *logs) startFailed(level hclog.Level, _ string, _ ...any) bool {
	return level >= hclog.Warn && l.failed.Load()
}

// setLevels changes the levels of all loggers that were made from these two.
func (l *logs) setLevels(c config.Log) {
	l.host.SetLevel(hclog.LevelFromString(c.Level))
	l.stages.SetLevel(hclog.LevelFromString(c.StageLevel))
}
