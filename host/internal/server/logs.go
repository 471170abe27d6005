package server

import (
	"errors"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/kubelog"
	"github.com/catena-dev/catena/host/internal/logring"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/store"
)

// logs are the loggers of the host: its own, that of Kubernetes' code and etcd in it, and one for
// each stage. Each has a level of its own; the format is that of all.
type logs struct {
	host, libraries hclog.Logger
	// recent has the latest lines of all of them.
	recent *logring.Ring
	format atomic.Pointer[string]
	new    func(name, source, level string, exclude func(hclog.Level, string, ...any) bool) hclog.Logger

	mu     sync.Mutex
	config config.Log // with the levels of stages that have no logger yet
	stages map[string]hclog.Logger

	// dataDir is the lock of the data directory while the server holds it.
	dataDir atomic.Pointer[store.DirLock]
	// interrupted is set when the server was asked to end before it was ready.
	interrupted atomic.Bool
	// failed is set when the server ends with an error before it was ready.
	failed atomic.Bool
}

// recentLogs is how many bytes of the log are kept in memory.
const recentLogs = 4 << 20

func newLogs(c config.Log) *logs {
	var output sync.Mutex
	l := &logs{recent: logring.New(recentLogs), config: c, stages: map[string]hclog.Logger{}}
	l.format.Store(&c.Format)
	l.new = func(name, source, level string, exclude func(hclog.Level, string, ...any) bool) hclog.Logger {
		return newLogger(config.LogFormats(), &l.format, func(format string) hclog.Logger {
			o := logOptions(format, &recorder{os.Stderr, l.recent, source})
			o.Name, o.Level, o.Mutex, o.Exclude = name, hclog.LevelFromString(level), &output, exclude
			return hclog.New(&o)
		})
	}
	l.host = l.new(logName, admin.HostLog, c.Level, l.startFailed)
	l.libraries = l.new(logName, admin.HostLog, c.LibraryLevel(), l.isConsequence)
	return l
}

// stage returns the logger of a stage.
func (l *logs) stage(name string) hclog.Logger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stages[name] == nil {
		l.stages[name] = l.new(logName+"."+name, name, l.config.LevelOf(name), l.isConsequence)
	}
	return l.stages[name]
}

// panicked logs a panic.
func (l *logs) panicked(err error) {
	if p, ok := errors.AsType[*panics.Error](err); ok {
		l.host.Error("a panic in the host: please report it", "error", err, "stack", string(p.Stack))
	}
}

// serverErrors is where servers of net/http log what has no request.
func (l *logs) serverErrors() *log.Logger {
	return l.host.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn})
}

// recorder keeps what is logged, and then writes it.
type recorder struct {
	out    io.Writer
	recent *logring.Ring
	source string
}

// LevelWrite implements hclog.LevelWriter.
func (r *recorder) LevelWrite(level hclog.Level, line []byte) (int, error) {
	r.recent.Add(logring.Line{At: time.Now(), Level: level, Source: r.source, Text: line})
	return r.out.Write(line)
}

// Write implements io.Writer.
func (r *recorder) Write(line []byte) (int, error) { return r.LevelWrite(hclog.Info, line) }

// NewLogger returns a logger like that of the host, for what comes before Run and after it.
func NewLogger(c config.Log) hclog.Logger {
	o := logOptions(c.Format, os.Stderr)
	o.Level = hclog.LevelFromString(c.Level)
	return hclog.New(&o)
}

// logName is the name of the host's logger, with which those of all others begin.
const logName = "catena"

// logOptions are those of a logger with that format.
func logOptions(format string, out io.Writer) hclog.LoggerOptions {
	o := hclog.LoggerOptions{Output: out, JSONFormat: format == config.JSONLog}
	switch format {
	case config.KlogLog:
		o = kubelog.Text(out, os.Getpid())
	case config.KlogJSONLog:
		o = kubelog.JSON(out)
	}
	o.Name = logName
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

// apply makes the levels and the format those of a configuration, and returns the stages whose level has changed.
func (l *logs) apply(c config.Log) (changed []string) {
	l.format.Store(&c.Format)
	l.host.SetLevel(hclog.LevelFromString(c.Level))
	l.libraries.SetLevel(hclog.LevelFromString(c.LibraryLevel()))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config = c
	for name, stage := range l.stages {
		if level := hclog.LevelFromString(c.LevelOf(name)); stage.GetLevel() != level {
			stage.SetLevel(level)
			changed = append(changed, name)
		}
	}
	return changed
}
