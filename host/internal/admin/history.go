package admin

import "time"

// Event is something that has happened to the chain.
type Event struct {
	At time.Time `json:"at"`
	// Kind is a kind of the table below; "reloaded" or "reload-failed"; the kind of a fault that has begun, such as
	// "etcd-silent"; "etcd-responds" or "etcd-writable".
	Kind string `json:"kind"`
	// Stage is empty if the event is about the whole chain.
	Stage string `json:"stage,omitempty"`
	// From and To are generations.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Text says what has happened, in a sentence without the name of the stage.
	Text string `json:"text"`
	// Bad reports whether something has failed.
	Bad bool `json:"bad,omitempty"`
	// TookSeconds is how long it took, where that is of interest.
	TookSeconds float64 `json:"tookSeconds,omitempty"`
}

// Change is something that an operator has asked a running host to change, on the admin socket or by a signal.
type Change struct {
	// At is when it was asked for.
	At time.Time `json:"at"`
	// By is who has asked: a user of this machine.
	By string `json:"by"`
	// What is the change as a command.
	What        string  `json:"what"`
	TookSeconds float64 `json:"tookSeconds"`
	// Error is why nothing has changed; empty if it has.
	Error string `json:"error,omitempty"`
}

// Check is the result of a health check.
type Check struct {
	// Name is STAGE/CHECK if it is a stage's.
	Name string `json:"name"`
	// Endpoints are those that it is part of: healthz, livez, readyz.
	Endpoints []string `json:"endpoints"`
	// Required reports whether they fail if the check does.
	Required bool `json:"required"`
	// Failure is why it has failed; empty if it has passed.
	Failure string `json:"failure,omitempty"`
}

// HostStatus is that of the process of the host.
type HostStatus struct {
	// Version is that of Catena, KubernetesVersion the release whose filters it has.
	Version           string    `json:"version"`
	KubernetesVersion string    `json:"kubernetesVersion"`
	PID               int       `json:"pid"`
	Since             time.Time `json:"since"`
	// Address is where clients reach the server.
	Address string `json:"address"`
	// Ready reports whether the server has been ready.
	Ready bool `json:"ready"`
}
