package store

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap returns a zap logger that writes to log. Where etcd would end the process,
// for example because its disk is full, only the goroutine ends and fatal is
// told why: the decision to end the process is the host's. Once closing is set, errors
// count as details: etcd takes the end of its own listener for one.
func newZap(log hclog.Logger, closing *atomic.Bool, fatal func(error)) *zap.Logger {
	hook := fatalHook{fatal: fatal}
	return zap.New(&logCore{log: log, closing: closing}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// logCore is a zapcore.Core on an hclog.Logger.
type logCore struct {
	log     hclog.Logger
	closing *atomic.Bool
	fields  []zapcore.Field
}

func (c *logCore) Enabled(level zapcore.Level) bool {
	switch {
	case level >= zapcore.ErrorLevel:
		return true // the fatal hook rides on a written entry
	case level == zapcore.WarnLevel:
		return c.log.IsWarn()
	case level == zapcore.InfoLevel:
		return c.log.IsDebug()
	default:
		return c.log.IsTrace()
	}
}

func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{log: c.log, closing: c.closing, fields: append(c.fields[:len(c.fields):len(c.fields)], fields...)}
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
	case c.closing.Load() && entry.Level >= zapcore.WarnLevel:
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

func (c *logCore) Sync() error { return nil }

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
