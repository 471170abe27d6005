package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// maxHistory is how many events, and how many changes, are kept.
const maxHistory = 100

// history is what has happened to the chain lately, and what operators have asked for.
type history struct {
	mu      sync.Mutex
	events  []admin.Event
	changes []admin.Change
	signals []admin.Signal // of the lifecycle, all of them
	// changed is closed when there is something new.
	changed chan struct{}
}

func newHistory() *history { return &history{changed: make(chan struct{})} }

// event keeps an event, if it is one for people.
func (h *history) event(e supervisor.Event) {
	if described, ok := describe(e); ok {
		h.add(described)
	}
}

func (h *history) add(e admin.Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = last(append(h.events, e))
	h.announce()
}

// change keeps what an operator has asked for.
func (h *history) change(c admin.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = last(append(h.changes, c))
	h.announce()
}

func (h *history) announce() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// next returns a channel that is closed when there is something new.
func (h *history) next() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// signal keeps a lifecycle signal.
func (h *history) signal(s admin.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signals = append(h.signals, s)
}

func (h *history) list() ([]admin.Event, []admin.Change, []admin.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events), slices.Clone(h.changes), slices.Clone(h.signals)
}

// last are the last entries of which maxHistory are kept.
func last[T any](all []T) []T {
	if len(all) > maxHistory {
		all = slices.Delete(all, 0, len(all)-maxHistory)
	}
	return all
}

// describe returns an event as operators read it, if it is told.
func describe(e supervisor.Event) (admin.Event, bool) {
	row, told := rowOf(e)
	if !told {
		return admin.Event{}, false
	}
	d := admin.Event{
		At: e.At, Kind: string(e.Kind), Stage: e.Stage, From: e.From, To: e.To, TookSeconds: e.Took.Seconds(),
		Text: row.text(e), Bad: row.bad,
	}
	if e.Kind == supervisor.StateChanged {
		d.Kind, d.From, d.To = "ended", e.Generation, ""
	}
	return d, true
}

// failureOf is why a process has failed, without the name of its stage.
func failureOf(e supervisor.Event) string {
	return cmp.Or(strings.TrimPrefix(e.Reason, fmt.Sprintf("stage %q: ", e.Stage)), "for no known reason")
}

// because is a reason as the end of a sentence, if there is one.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// reloaded is the event of a reload.
func reloaded(r *admin.Reload) admin.Event {
	e := admin.Event{At: r.At, Kind: "reloaded", Text: "configuration " + r.String(), TookSeconds: time.Since(r.At).Seconds()}
	if r.Error != "" {
		e.Kind, e.Bad = "reload-failed", true
	}
	return e
}
