package server

import (
	"fmt"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// eventRow is how a kind of event is told, and counted.
type eventRow struct {
	// text is the event as operators read it.
	text func(e supervisor.Event) string
	// bad reports whether something has failed, or gets worse.
	bad bool
	// reason is that of the Event of Kubernetes, of which message is the text; it is empty if there is to be no such Event.
	// The Event is a warning if it is bad, and normal otherwise.
	reason  string
	message func(e supervisor.Event) string
	// started counts how long the start of a process took, swap how a swap has ended, unless it is empty.
	started bool
	swap    string
}

// rowOf returns how an event is told. Of the states that a process goes through, only the last one is: that it has failed.
func rowOf(e supervisor.Event) (row eventRow, told bool) {
	row, told = eventTable()[e.Kind]
	return row, told && (e.Kind != supervisor.StateChanged || e.To == lifecycle.Failed.String())
}

// eventTable has a row for each kind of event.
func eventTable() map[supervisor.EventKind]eventRow {
	said := func(text string) func(supervisor.Event) string {
		return func(supervisor.Event) string { return text }
	}
	why := func(text string) func(supervisor.Event) string {
		return func(e supervisor.Event) string { return text + because(e.Reason) }
	}
	reason := func(e supervisor.Event) string { return e.Reason }
	return map[supervisor.EventKind]eventRow{
		supervisor.StateChanged: { // to failed; the other states are not told
			text: func(e supervisor.Event) string { return "process " + e.Generation + " has ended: " + failureOf(e) }, bad: true,
			reason: "StageFailed", message: failureOf,
		},
		supervisor.Restarted: {
			text:   func(e supervisor.Event) string { return "restarted: process " + e.To + " serves" },
			reason: "StageRestarted", message: said("another process serves"), started: true,
		},
		supervisor.ReleaseChanged: {text: reason, bad: true, reason: "ReleaseChanged", message: reason},
		supervisor.TookOver: {
			text:   func(e supervisor.Event) string { return "the standby " + e.To + " has taken over" },
			reason: "StandbyTookOver", message: said("the standby serves"), started: true,
		},
		supervisor.SwapBegun: {text: why("a new process is started")},
		supervisor.SwapDone: {
			text:   func(e supervisor.Event) string { return "swapped: " + e.From + " → " + e.To },
			reason: "StageSwapped", message: why("a new process serves"), started: true, swap: front.Succeeded,
		},
		supervisor.SwapFailed: {
			text: why("not swapped"), bad: true,
			reason: "SwapFailed", message: why("the process before goes on"), swap: front.Failed,
		},
		supervisor.SwapRolledBack: {
			text: why("rolled back"), bad: true,
			reason: "SwapRolledBack", message: why("the process before serves again"), swap: front.RolledBack,
		},
		supervisor.SwapReverted: {
			text:   why("reverted"),
			reason: "SwapReverted", message: why("the process before serves again"), swap: front.Reverted,
		},
		supervisor.SwapAccepted: {
			text: func(e supervisor.Event) string { return "the probation of " + e.To + " is over: it stays" },
		},
		supervisor.CanaryStep: {
			text: func(e supervisor.Event) string { return "canary: " + e.Reason + " go to " + e.To },
		},
		supervisor.StageAdded: {
			text:   said("added to the chain"),
			reason: "StageAdded", message: said("the stage is part of the chain"), started: true,
		},
		supervisor.StageRemoved: {
			text:   said("removed from the chain"),
			reason: "StageRemoved", message: said("the stage is no longer part of the chain"),
		},
		supervisor.ChainReordered: {text: said("the chain has another order")},
		supervisor.Held:           {text: said("requests wait for another process")},
		supervisor.Refused: {
			text: said("requests are refused until the stage is back"), bad: true,
			reason: "StageDown", message: said("requests are refused until there is another process"),
		},
		supervisor.StandbyReady:  {text: func(e supervisor.Event) string { return "standby " + e.To + " is ready" }},
		supervisor.StandbyFailed: {text: why("no standby"), bad: true},
		supervisor.LimitReached: {
			text: func(e supervisor.Event) string {
				return fmt.Sprintf("process %s has come to its limit %q%s", e.Generation, e.Limit, because(e.Reason))
			}, bad: true,
			reason: "LimitReached", message: func(e supervisor.Event) string {
				return "a process has come to the limit " + e.Limit + because(e.Reason)
			},
		},
		supervisor.LimitsNotInForce: {text: why("limits of memory are not in force"), bad: true},
		supervisor.LimitsInForce:    {text: said("limits of memory are in force again")},
	}
}
