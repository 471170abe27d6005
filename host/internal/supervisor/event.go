package supervisor

import "time"

// EventKind says what has happened to a stage.
type EventKind string

// The kinds of events.
const (
	// StateChanged: a generation has gone From one state To another.
	StateChanged EventKind = "state"
	// Restarted: another generation, To, is in place of one that has ended, after Took.
	Restarted EventKind = "restarted"
	// ReleaseChanged: To, which is in place of From after its end, is of another release of Kubernetes, as Reason says.
	ReleaseChanged EventKind = "release-changed"
	// TookOver: the standby, To, is in place of a generation that has ended, after Took.
	TookOver EventKind = "took-over"
	// SwapBegun, SwapDone, SwapFailed, SwapRolledBack and SwapReverted tell of a generation, To, that
	// is to take the place of another, From. They come for each stage of an Apply too. A
	// swap that is refused at once fails without having begun. It is reverted on request.
	SwapBegun      EventKind = "swap-begun"
	SwapDone       EventKind = "swap-done"
	SwapFailed     EventKind = "swap-failed"
	SwapRolledBack EventKind = "swap-rolled-back"
	SwapReverted   EventKind = "swap-reverted"
	// SwapAccepted: the probation of a generation is over.
	SwapAccepted EventKind = "swap-accepted"
	// CanaryStep: a share of the requests, which Reason says, goes to a generation, To, from now on, the others to From.
	CanaryStep EventKind = "canary-step"
	// StageAdded and StageRemoved: the chain has a stage more or less.
	StageAdded   EventKind = "stage-added"
	StageRemoved EventKind = "stage-removed"
	// ChainReordered: the stages that were there before stand in another order. Stage is
	// empty.
	ChainReordered EventKind = "chain-reordered"
	// Held: the stage has ended, its requests wait. Refused: they wait no longer.
	Held    EventKind = "held"
	Refused EventKind = "refused"
	// StandbyReady and StandbyFailed tell of a second generation, To.
	StandbyReady  EventKind = "standby-ready"
	StandbyFailed EventKind = "standby-failed"
	// LimitReached: a generation has come to a Limit.
	LimitReached EventKind = "limit-reached"
	// LimitsNotInForce: limits of memory are not kept, since processes cannot be measured, as Reason says.
	// LimitsInForce: they are again. Stage is empty.
	LimitsNotInForce EventKind = "limits-not-in-force"
	LimitsInForce    EventKind = "limits-in-force"
)

// Event is something that has happened to a stage.
type Event struct {
	Kind  EventKind
	Stage string
	// From and To are generations, or the states of Generation.
	From, To   string
	Generation string
	// Limit is the name of a limit.
	Limit string
	// Reason says why, where that is not plain.
	Reason string
	At     time.Time
	// Took is how long it took, where that is of interest.
	Took time.Duration
}
