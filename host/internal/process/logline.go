package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// entry is one line of a stage's log.
type entry struct {
	level   hclog.Level
	message string
	args    []any // alternately names, which are strings, and values
}

// String is the entry for people.
func (e entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", strings.ToUpper(e.level.String()), e.message)
	for i := 0; i+1 < len(e.args); i += 2 {
		fmt.Fprintf(&b, " %v=%v", e.args[i], e.args[i+1])
	}
	return b.String()
}

// parseLine recognises what hclog writes as JSON, and what klog writes. For other
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
	e := entry{level: level, message: message}
	// The host's own logger says when and who.
	for _, name := range []string{"@message", "@level", "@timestamp", "@module"} {
		delete(fields, name)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		e.args = append(e.args, strings.TrimPrefix(name, "@"), fields[name])
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
	e := entry{level: level, message: string(message)}
	if i := bytes.LastIndexByte(head, ' '); i >= 0 {
		e.args = []any{"caller", string(head[i+1:])}
	}
	return e, true
}
