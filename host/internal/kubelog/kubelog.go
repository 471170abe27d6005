// Package kubelog writes the lines of hclog loggers as programs of Kubernetes write theirs, for
// what collects logs of kube-apiserver.
package kubelog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/printable"
)

// timeFormat is precise enough for klog's microseconds.
const timeFormat = "2006-01-02T15:04:05.000000Z07:00"

// Text returns the options of a logger that writes klog's text format:
//
//	I1122 18:00:00.000000 PID LOGGER:1] "message" key="value"
//
// The name of the logger is where klog has a source file.
func Text(out io.Writer, pid int) hclog.LoggerOptions {
	return options(out, func(l line) []byte { return l.text(pid) })
}

// JSON returns the options of a logger that writes klog's JSON format, with the keys ts, logger,
// caller, msg, v and err.
func JSON(out io.Writer) hclog.LoggerOptions { return options(out, line.json) }

func options(out io.Writer, format func(line) []byte) hclog.LoggerOptions {
	return hclog.LoggerOptions{Output: &writer{out, format}, JSONFormat: true, TimeFormat: timeFormat}
}

// writer takes one line of hclog's JSON with each call, and passes it on in another format.
type writer struct {
	out    io.Writer
	format func(line) []byte
}

// Write implements io.Writer.
func (w *writer) Write(text []byte) (int, error) { return w.LevelWrite(hclog.NoLevel, text) }

// LevelWrite implements hclog.LevelWriter, and calls that of a writer that has it. What is not a line
// of hclog's JSON passes as it is.
func (w *writer) LevelWrite(level hclog.Level, text []byte) (int, error) {
	formatted := text
	if l, ok := parse(text); ok {
		formatted = w.format(l)
	}
	var err error
	if out, ok := w.out.(hclog.LevelWriter); ok {
		_, err = out.LevelWrite(level, formatted)
	} else {
		_, err = w.out.Write(formatted)
	}
	if err != nil {
		return 0, err
	}
	return len(text), nil
}

// line is what hclog writes as one line.
type line struct {
	time            time.Time
	level           hclog.Level
	logger, message string
	values          map[string]any
}

func parse(text []byte) (line, bool) {
	l := line{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&l.values); err != nil {
		return line{}, false
	}
	take := func(key string) string {
		value, _ := l.values[key].(string)
		delete(l.values, key)
		return value
	}
	var err error
	l.time, err = time.Parse(timeFormat, take("@timestamp"))
	l.level, l.logger, l.message = hclog.LevelFromString(take("@level")), take("@module"), take("@message")
	return l, err == nil
}

// severity is the first letter of a line of klog.
func (l line) severity() byte {
	switch l.level {
	case hclog.Warn:
		return 'W'
	case hclog.Error:
		return 'E'
	}
	return 'I'
}

// verbosity is that of the flag --v at which programs of Kubernetes would log the line.
func (l line) verbosity() int {
	switch l.level {
	case hclog.Debug:
		return 4
	case hclog.Trace:
		return 6
	}
	return 0
}

// key returns the key of Kubernetes for one of ours.
func key(name string) string {
	if name == "error" {
		return "err"
	}
	return name
}

func (l line) text(pid int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%c%s %7d %s] %q", l.severity(), l.time.Local().Format("0102 15:04:05.000000"), pid, l.caller(), l.message)
	for _, name := range slices.Sorted(maps.Keys(l.values)) {
		fmt.Fprintf(&b, " %s=%s", key(name), textValue(l.values[name]))
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// caller stands for a source file and a line of it.
func (l line) caller() string { return strings.ReplaceAll(l.logger, " ", "_") + ":1" }

// textValue returns a value as klog's text format has it: texts are quoted.
func textValue(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return strconv.Quote(fmt.Sprint(v))
	}
	return string(text)
}

func (l line) json() []byte {
	fields := map[string]any{}
	for name, value := range l.values {
		fields[key(name)] = value
	}
	maps.Copy(fields, map[string]any{
		"ts": json.Number(strconv.FormatFloat(float64(l.time.UnixMicro())/1000, 'f', 3, 64)), "logger": l.logger,
		"caller": l.caller(), "msg": l.message,
	})
	if l.level != hclog.Error {
		fields["v"] = l.verbosity()
	}
	text, err := json.Marshal(fields)
	if err != nil { // it has been decoded from JSON
		text, _ = json.Marshal(map[string]string{"msg": l.message, "err": err.Error()})
	}
	return append(printable.JSON(text), '\n')
}
