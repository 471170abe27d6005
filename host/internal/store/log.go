package store

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap returns a zap logger that writes to log. Where etcd would end the process, for
// example because its disk is full, only the goroutine ends and fatal is called with the
// reason: whether to end the process is the host's decision. While ending returns true,
// warnings and errors are logged at debug: etcd logs the end of its own listener as an error.
func newZap(log hclog.Logger, ending func() bool, fatal func(error)) *zap.Logger {
	hook := fatalHook{fatal: fatal}
	core := &logCore{log: log, ending: ending, slow: &slowness{logged: time.Now()}}
	return zap.New(core, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// logCore is a zapcore.Core on an hclog.Logger.
type logCore struct {
	log    hclog.Logger
	ending func() bool
	slow   *slowness
	fields []zapcore.Field
}

func (c *logCore) Enabled(level zapcore.Level) bool {
	switch {
	case level >= zapcore.ErrorLevel:
		return true // the fatal hook runs for written entries only
	case level == zapcore.WarnLevel:
		return c.log.IsWarn()
	case level == zapcore.InfoLevel:
		return c.log.IsDebug()
	default:
		return c.log.IsTrace()
	}
}

func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	with := *c
	with.fields = append(c.fields[:len(c.fields):len(c.fields)], fields...)
	return &with
}

func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	args := hclogArgs(append(c.fields[:len(c.fields):len(c.fields)], fields...))
	switch {
	case entry.Level >= zapcore.WarnLevel && (c.ending() || isHarmless(entry, args)):
		c.log.Debug(entry.Message, args...)
	case entry.Level == zapcore.WarnLevel && slices.Contains(slowMachine, entry.Message):
		if since, due := c.slow.complain(); due {
			c.log.Warn("etcd is slow: its disk, or this machine, has too much to do", "etcd", entry.Message,
				"others", since)
		}
		c.log.Debug(entry.Message, args...)
	case entry.Level >= zapcore.ErrorLevel:
		c.log.Error(entry.Message, args...)
	case entry.Level == zapcore.WarnLevel:
		c.log.Warn(entry.Message, args...)
	case entry.Level == zapcore.InfoLevel:
		c.log.Debug(entry.Message, args...)
	default:
		c.log.Trace(entry.Message, args...)
	}
	return nil
}

// isHarmless reports whether a warning or error of etcd is part of a healthy start. With an empty
// directory, etcd looks for the version of its files before it has written any, and tries again;
// and the only member campaigns, on a slow disk, before it has read that it is one.
func isHarmless(entry zapcore.Entry, args []any) bool {
	switch entry.Message {
	case "simple token is not cryptographically signed": // etcd's own users are not used
		return true
	case "Failed to detect schema version", "failed to update storage version":
		text := fmt.Sprint(args...)
		return strings.Contains(text, "missing term information") || strings.Contains(text, "missing confstate information")
	}
	return strings.HasPrefix(entry.Message, "Running http and grpc server on single port") || // a Unix socket with few clients
		strings.Contains(entry.Message, "since there are still pending configuration changes to apply")
}

func (c *logCore) Sync() error { return nil }

// slowMachine are the warnings that etcd logs, each of them many times, when its disk or the machine is busy.
var slowMachine = []string{
	"apply request took too long", "request stats", "slow fdatasync", "snapshotting taking too long to transfer",
	"timed out waiting for read index response (local node might have slow network)",
	"waiting for ReadIndex response took too long, retrying",
}

// slowPause is how long they are one line. In the first such time, in which the server starts and the machine is likely
// to be busy, they are not told.
const slowPause = time.Minute

// slowness counts them.
type slowness struct {
	mu     sync.Mutex
	logged time.Time
	since  int
}

// complain counts one, and reports whether it is to be logged, and how many have not been since the latest that was.
func (s *slowness) complain() (since int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.logged) < slowPause {
		s.since++
		return 0, false
	}
	since = s.since
	s.logged, s.since = time.Now(), 0
	return since, true
}

// hclogArgs turns zap's fields into hclog's list of keys and values.
func hclogArgs(fields []zapcore.Field) []any {
	var args []any
	for _, field := range fields {
		encoded := zapcore.NewMapObjectEncoder()
		field.AddTo(encoded)
		if value, ok := encoded.Fields[field.Key]; ok {
			args = append(args, field.Key, value)
		}
	}
	return args
}

// fatalHook ends the goroutine that logged, instead of the process.
type fatalHook struct{ fatal func(error) }

func (h fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	h.fatal(entryError(entry.Message, fields))
	runtime.Goexit()
}

// entryError is the error of a log entry: its message, and the errors among its fields.
func entryError(message string, fields []zapcore.Field) error {
	err := errors.New(message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	return err
}
