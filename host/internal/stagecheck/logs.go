package stagecheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// recorder keeps what a stage logs, as the host has understood it.
type recorder struct {
	mu      sync.Mutex
	last    []string
	dropped string // the host's complaint about a flood
	odd     string // a line that pretends to be in the host's format
}

const keptLines = 20

func newRecorder() *recorder { return &recorder{} }

// logger returns a logger whose entries are kept.
func (r *recorder) logger(level hclog.Level) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: r, JSONFormat: true, DisableTime: true})
}

// Write takes one entry of hclog.
func (r *recorder) Write(p []byte) (int, error) {
	entry := map[string]any{}
	if json.Unmarshal(bytes.TrimSpace(p), &entry) != nil {
		return len(p), nil
	}
	level, message := fmt.Sprint(entry["@level"]), fmt.Sprint(entry["@message"])
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.Contains(message, "logs too much") {
		r.dropped = fmt.Sprintf("%s (%v lines)", message, entry["lines"])
	}
	if strings.HasPrefix(message, "{") && (strings.Contains(message, `"@level"`) || strings.Contains(message, `"@message"`)) {
		r.odd = message
	}
	r.last = append(r.last, "["+strings.ToUpper(level)+"] "+message+pairs(entry))
	if len(r.last) > keptLines {
		r.last = r.last[1:]
	}
	return len(p), nil
}

// pairs are the fields of an entry, in the order of their names, as " name=value".
func pairs(entry map[string]any) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(entry)) {
		if strings.HasPrefix(name, "@") {
			continue
		}
		text := fmt.Sprint(entry[name])
		if text == "" || strings.ContainsAny(text, " \t\n\"=") {
			text = strconv.Quote(text)
		}
		fmt.Fprintf(&b, " %s=%s", name, text)
	}
	return b.String()
}

func (r *recorder) tail() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.last...)
}

// complaints returns what is wrong with the log.
func (r *recorder) complaints() (dropped, odd string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped, r.odd
}
