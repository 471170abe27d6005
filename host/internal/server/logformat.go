package server

import (
	"io"
	"log"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// logger writes a line in the format that is set when the line is logged: hclog's own loggers have one format for life.
type logger struct {
	hclog.Logger // of the first format: name, level and implied arguments are the same in all
	formats      map[string]hclog.Logger
	format       *atomic.Pointer[string]
}

// newLogger returns a logger that has one of its own for each format.
func newLogger(formats []string, format *atomic.Pointer[string], in func(format string) hclog.Logger) *logger {
	all := map[string]hclog.Logger{}
	for _, f := range formats {
		all[f] = in(f)
	}
	return &logger{all[formats[0]], all, format}
}

func (l *logger) current() hclog.Logger { return l.formats[*l.format.Load()] }

// Log implements hclog.Logger.
func (l *logger) Log(level hclog.Level, message string, args ...any) {
	l.current().Log(level, message, readable(args)...)
}

// Trace implements hclog.Logger.
func (l *logger) Trace(message string, args ...any) { l.Log(hclog.Trace, message, args...) }

// Debug implements hclog.Logger.
func (l *logger) Debug(message string, args ...any) { l.Log(hclog.Debug, message, args...) }

// Info implements hclog.Logger.
func (l *logger) Info(message string, args ...any) { l.Log(hclog.Info, message, args...) }

// Warn implements hclog.Logger.
func (l *logger) Warn(message string, args ...any) { l.Log(hclog.Warn, message, args...) }

// Error implements hclog.Logger.
func (l *logger) Error(message string, args ...any) { l.Log(hclog.Error, message, args...) }

// With implements hclog.Logger.
func (l *logger) With(args ...any) hclog.Logger {
	args = readable(args)
	return l.derived(func(in hclog.Logger) hclog.Logger { return in.With(args...) })
}

// Named implements hclog.Logger.
func (l *logger) Named(name string) hclog.Logger {
	return l.derived(func(in hclog.Logger) hclog.Logger { return in.Named(name) })
}

// ResetNamed implements hclog.Logger.
func (l *logger) ResetNamed(name string) hclog.Logger {
	return l.derived(func(in hclog.Logger) hclog.Logger { return in.ResetNamed(name) })
}

func (l *logger) derived(from func(hclog.Logger) hclog.Logger) *logger {
	d := &logger{formats: make(map[string]hclog.Logger, len(l.formats)), format: l.format}
	for format, in := range l.formats {
		d.formats[format] = from(in)
		d.Logger = d.formats[format]
	}
	return d
}

// SetLevel implements hclog.Logger.
func (l *logger) SetLevel(level hclog.Level) {
	for _, in := range l.formats {
		in.SetLevel(level)
	}
}

// StandardLogger implements hclog.Logger.
func (l *logger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (l *logger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	if o == nil {
		o = &hclog.StandardLoggerOptions{} // hclog itself does without in StandardLogger only
	}
	return writerFunc(func(line []byte) (int, error) { return l.current().StandardWriter(o).Write(line) })
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// readable makes durations texts, as Kubernetes' programs do: in JSON hclog writes nanoseconds.
func readable(args []any) []any {
	isDuration := func(v any) bool { _, ok := v.(time.Duration); return ok }
	if !slices.ContainsFunc(args, isDuration) {
		return args
	}
	args = slices.Clone(args)
	for i, v := range args {
		if d, ok := v.(time.Duration); ok {
			args[i] = d.String()
		}
	}
	return args
}
