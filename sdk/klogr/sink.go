package klogr

import (
	"fmt"
	"runtime"
	"strings"
	"unicode"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	"k8s.io/klog/v2"
)

// sink is a logr.LogSink, for what is logged in keys and values.
type sink struct {
	// log returns the logger for a line, which can be another for the next.
	log func() hclog.Logger
	// depth is how many frames are between the caller that logs and this sink's
	// methods; klog needs it for --vmodule.
	depth int
}

func (s *sink) Init(info logr.RuntimeInfo) { s.depth += info.CallDepth }

func (s *sink) Enabled(level int) bool {
	return klog.VDepth(s.depth+1, klog.Level(level)).Enabled()
}

func (s *sink) Info(_ int, message string, keysAndValues ...any) {
	message, args := oneLine(message, plain(keysAndValues))
	s.log().Info(message, args...)
}

func (s *sink) Error(err error, message string, keysAndValues ...any) {
	args := plain(keysAndValues)
	if err != nil {
		args = append(args, "error", text(err))
	}
	level := lowered(hclog.Error, s.source(), message, err)
	message, args = oneLine(message, args)
	s.log().Log(level, message, args...)
}

// source returns the path of the file that the caller's caller is in.
func (s *sink) source() string {
	_, file, _, _ := runtime.Caller(s.depth + 2)
	return file
}

func (s *sink) WithValues(keysAndValues ...any) logr.LogSink {
	args := plain(keysAndValues)
	return &sink{log: func() hclog.Logger { return s.log().With(args...) }, depth: s.depth}
}

func (s *sink) WithName(name string) logr.LogSink {
	return &sink{log: func() hclog.Logger { return s.log().Named(name) }, depth: s.depth}
}

func (s *sink) WithCallDepth(depth int) logr.LogSink {
	return &sink{log: s.log, depth: s.depth + depth}
}

// oneLine cuts a message where it has a line break or another character that cannot be
// printed, and adds the rest to args: hclog escapes those and marks their lines, but writes
// a message as it is, which could forge lines of the log.
func oneLine(message string, args []any) (string, []any) {
	i := strings.IndexFunc(message, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' || r == unicode.ReplacementChar })
	if i < 0 {
		return message, args
	}
	return strings.TrimSpace(message[:i]), append(args, "detail", strings.TrimSpace(message[i:]))
}

// plain makes keys and values fit for hclog, which panics on a key that is no
// string and prints the fields of what has a String method when its format is
// JSON.
func plain(keysAndValues []any) []any {
	args := make([]any, 0, len(keysAndValues)+3)
	for i, v := range keysAndValues {
		switch {
		case i%2 == 0 && i+1 == len(keysAndValues):
			args = append(args, hclog.MissingKey, text(v))
		case i%2 == 0:
			args = append(args, fmt.Sprint(v))
		default:
			args = append(args, text(v))
		}
	}
	return args
}

// text returns what stands for v in the log. Methods of v that panic, as those
// of nil pointers do, do no harm.
func text(v any) (shown any) {
	defer func() {
		if p := recover(); p != nil {
			shown = fmt.Sprintf("<panic: %v>", p)
		}
	}()
	switch v := v.(type) {
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	case logr.Marshaler:
		return v.MarshalLog()
	default:
		return v
	}
}
