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

	"github.com/catena-dev/catena/host/internal/printable"
)

// recorder keeps what processes log, as the host has understood it.
type recorder struct {
	mu        sync.Mutex
	processes []*processLog
	dropped   string // the host's complaint about a flood
	odd       string // a line that pretends to be in the host's format
}

// processLog has the last lines of one process.
type processLog struct {
	recorder *recorder
	check    string // for which the process was started
	last     []string
	shown    bool
}

const keptLines = 20

func newRecorder() *recorder { return &recorder{} }

// process begins the log of another process.
func (r *recorder) process(check string) *processLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &processLog{recorder: r, check: check}
	r.processes = append(r.processes, p)
	return p
}

// logger returns a logger whose entries are kept.
func (p *processLog) logger(level hclog.Level) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: p, JSONFormat: true, DisableTime: true})
}

// Write takes one entry of hclog.
func (p *processLog) Write(text []byte) (int, error) {
	entry := map[string]any{}
	if json.Unmarshal(bytes.TrimSpace(text), &entry) != nil {
		return len(text), nil
	}
	level, message := fmt.Sprint(entry["@level"]), fmt.Sprint(entry["@message"])
	r := p.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.Contains(message, "logs too much") {
		r.dropped = fmt.Sprintf("%s (%v lines)", message, entry["lines"])
	}
	if strings.HasPrefix(message, "{") && (strings.Contains(message, `"@level"`) || strings.Contains(message, `"@message"`)) {
		r.odd = message
	}
	p.last = append(p.last, printable.Line("["+strings.ToUpper(level)+"] "+message+pairs(entry)))
	if len(p.last) > keptLines {
		p.last = p.last[1:]
	}
	return len(text), nil
}

// count is how many processes there have been.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.processes)
}

// show makes the report have the log of the processes since the given number of them, and of stages that were used.
func (r *recorder) show(since int, used ...*stage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.processes[since:] {
		p.shown = true
	}
	for _, st := range used {
		if st != nil {
			st.log.shown = true
		}
	}
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

// tail returns the last lines of each process that show has named, with a heading.
func (r *recorder) tail() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, p := range r.processes {
		if p.shown && len(p.last) > 0 {
			lines = append(append(lines, "process started for the check "+p.check+":"), p.last...)
		}
	}
	return lines
}

// complaints returns what is wrong with the log.
func (r *recorder) complaints() (dropped, odd string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped, r.odd
}
