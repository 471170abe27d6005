package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/printable"
)

// entry is one line of a stage's log, made safe for the host's: whatever the stage has
// written, it becomes one entry with the host's time, level and module, in text and in JSON.
type entry struct {
	level   hclog.Level
	message string // one line
	args    []any  // alternately names, which are strings, and values
}

// newEntry returns an entry without arguments, but for the lines of the message after its
// first: hclog marks the lines of an argument as its own, those of a message not.
func newEntry(level hclog.Level, message string) entry {
	first, rest, _ := strings.Cut(strings.TrimRight(message, " \t\r\n"), "\n")
	e := entry{level: level, message: printable.Line(first)}
	if rest != "" {
		e.add("detail", rest)
	}
	return e
}

func (e *entry) add(name string, value any) {
	e.args = append(e.args, argumentName(name), argumentValue(value))
}

// String returns the entry as one line for people.
func (e entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", strings.ToUpper(e.level.String()), e.message)
	for i := 0; i+1 < len(e.args); i += 2 {
		fmt.Fprintf(&b, " %v=%v", e.args[i], e.args[i+1])
	}
	return printable.Line(b.String())
}

// parseLine recognizes what hclog writes as JSON, and what klog writes. For other
// lines, ok is false.
func parseLine(line []byte) (e entry, ok bool) {
	if len(line) == 0 {
		return entry{}, false
	}
	if line[0] == '{' {
		return parseHclog(line)
	}
	return parseKlog(line)
}

func parseHclog(line []byte) (entry, bool) {
	fields := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return entry{}, false
	}
	message, isText := fields["@message"].(string)
	levelName, _ := fields["@level"].(string)
	level := hclog.LevelFromString(levelName)
	if !isText || level == hclog.NoLevel || level == hclog.Off {
		return entry{}, false
	}
	e := newEntry(level, message)
	// The host's logger adds its own time and module.
	for _, name := range []string{"@message", "@level", "@timestamp", "@module"} {
		delete(fields, name)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		e.add(name, fields[name])
	}
	return e, true
}

// parseKlog takes lines such as
//
//	I1121 09:03:01.123456   12345 file.go:123] message
func parseKlog(line []byte) (entry, bool) {
	if len(line) < 22 || line[5] != ' ' || line[8] != ':' || line[11] != ':' || line[14] != '.' {
		return entry{}, false
	}
	var level hclog.Level
	switch line[0] {
	case 'I':
		level = hclog.Info
	case 'W':
		level = hclog.Warn
	case 'E', 'F':
		level = hclog.Error
	default:
		return entry{}, false
	}
	head, message, found := bytes.Cut(line, []byte("] "))
	if !found {
		return entry{}, false
	}
	e := newEntry(level, string(message))
	if i := bytes.LastIndexByte(head, ' '); i >= 0 {
		e.add("caller", string(head[i+1:]))
	}
	return e, true
}

// argumentName returns a name that ends where it seems to end, and is not one of hclog's own in
// JSON, which begin with @.
func argumentName(name string) string {
	name = strings.TrimLeft(name, "@")
	if name == "" {
		return "_"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || unicode.IsSpace(r) || strings.ContainsRune(`="`, r) {
			return '_'
		}
		return r
	}, name)
}

// argumentValue returns what hclog writes safely for a value of JSON. hclog escapes all of a
// text but line feeds, and marks the lines; tabs, as in a stack, would be escaped too. It does not
// escape what is in a list.
func argumentValue(v any) any {
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "\n") {
			return expandTabs(v)
		}
	case []any:
		for i := range v {
			v[i] = nestedValue(v[i])
		}
	}
	return v
}

func nestedValue(v any) any {
	switch v := v.(type) {
	case string:
		return printable.Line(v)
	case []any:
		for i := range v {
			v[i] = nestedValue(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			out[printable.Line(name)] = nestedValue(value)
		}
		return out
	}
	return v
}

func expandTabs(s string) string { return strings.ReplaceAll(s, "\t", "    ") }
