package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// maxHistory is how many events, and how many changes, are kept.
const maxHistory = 100

// history is what has happened to the chain lately, and what operators have asked for.
type history struct {
	mu      sync.Mutex
	events  []admin.Event
	changes []admin.Change
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

func (h *history) list() ([]admin.Event, []admin.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events), slices.Clone(h.changes)
}

// last are the last entries of which maxHistory are kept.
func last[T any](all []T) []T {
	if len(all) > maxHistory {
		all = slices.Delete(all, 0, len(all)-maxHistory)
	}
	return all
}

// describe returns an event as operators read it. Each process goes through some states, which are not told.
func describe(e supervisor.Event) (admin.Event, bool) {
	d := admin.Event{At: e.At, Kind: string(e.Kind), Stage: e.Stage, From: e.From, To: e.To, TookSeconds: e.Took.Seconds()}
	because := because(e.Reason)
	switch e.Kind {
	case supervisor.StateChanged:
		if e.To != lifecycle.Failed.String() {
			return d, false
		}
		d.Kind, d.From, d.To, d.Bad = "ended", e.Generation, "", true
		d.Text = "process " + e.Generation + " has ended: " + failureOf(e)
	case supervisor.Restarted:
		d.Text = "restarted: process " + e.To + " serves"
	case supervisor.ReleaseChanged:
		d.Text, d.Bad = e.Reason, true
	case supervisor.TookOver:
		d.Text = "the standby " + e.To + " has taken over"
	case supervisor.SwapBegun:
		d.Text = "a new process is started" + because
	case supervisor.SwapDone:
		d.Text = "swapped: " + e.From + " → " + e.To
	case supervisor.SwapFailed:
		d.Text, d.Bad = "not swapped"+because, true
	case supervisor.SwapRolledBack:
		d.Text, d.Bad = "rolled back"+because, true
	case supervisor.SwapReverted:
		d.Text = "reverted" + because
	case supervisor.SwapAccepted:
		d.Text = "the probation of " + e.To + " is over: it stays"
	case supervisor.CanaryStep:
		d.Text = "canary: " + e.Reason + " go to " + e.To
	case supervisor.StageAdded:
		d.Text = "added to the chain"
	case supervisor.StageRemoved:
		d.Text = "removed from the chain"
	case supervisor.ChainReordered:
		d.Text = "the chain has another order"
	case supervisor.Held:
		d.Text = "requests wait for another process"
	case supervisor.Refused:
		d.Text, d.Bad = "requests are refused until the stage is back", true
	case supervisor.StandbyReady:
		d.Text = "standby " + e.To + " is ready"
	case supervisor.StandbyFailed:
		d.Text, d.Bad = "no standby"+because, true
	case supervisor.LimitReached:
		d.Text, d.Bad = fmt.Sprintf("process %s has come to its limit %q%s", e.Generation, e.Limit, because), true
	case supervisor.LimitsNotInForce:
		d.Text, d.Bad = "limits of memory are not in force"+because, true
	case supervisor.LimitsInForce:
		d.Text = "limits of memory are in force again"
	default:
		d.Text = string(e.Kind) + because
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
