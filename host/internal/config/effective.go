package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Setting is one value of the effective configuration.
type Setting struct {
	// Key is the dotted key as --set takes it.
	Key string
	// Value is a string, []string, int64 or, in a stage's own configuration, what
	// JSON can hold. Durations are strings, such as 1m30s.
	Value any
	// Source is the layer that the value came from: the path of a file,
	// "env NAME", "--set KEY", "--FLAG" or "default". Line is its line in a file, 0
	// if that is not known.
	Source string
	Line   int
}

// Path returns the elements of the key.
func (s Setting) Path() []string { return undotted(s.Key) }

// Text returns the value for people: strings as they are unless they would be taken
// for something else, anything else as JSON.
func (s Setting) Text() string {
	if str, ok := s.Value.(string); ok && str != "" && str != "null" && parseJSON(str) == nil {
		return str
	}
	b, err := json.Marshal(s.Value)
	if err != nil { // not a value that normalize lets through
		return fmt.Sprint(s.Value)
	}
	return string(b)
}

// Where returns the source with the line in it, if that is known.
func (s Setting) Where() string {
	if s.Line > 0 {
		return fmt.Sprintf("%s:%d", s.Source, s.Line)
	}
	return s.Source
}

// settings lists the merged values by key. Mappings stand for themselves only where
// they are empty.
func (m *merger) settings() []Setting {
	var out []Setting
	var walk func(path []string, v any)
	walk = func(path []string, v any) {
		if sub := asMap(v); len(sub) > 0 {
			for name, member := range sub {
				walk(join(path, name), member)
			}
			return
		}
		if d, ok := v.(time.Duration); ok {
			v = shortDuration(d)
		}
		s := Setting{Key: dotted(path), Value: v}
		if l := m.origins[s.Key]; l != nil {
			s.Source, s.Line = l.source, l.line(path)
		}
		out = append(out, s)
	}
	for name, v := range m.ko.Raw() {
		walk([]string{name}, v)
	}
	slices.SortFunc(out, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// shortDuration is time.Duration's String without units that are zero: 5m, not 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
