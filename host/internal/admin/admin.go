// Package admin is the admin socket, on which the commands speak to a running host: the
// requests and responses, the server of the socket and its client.
package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

// socketName is the admin socket in the runtime directory, which keeps other users out,
// as does the socket itself.
const socketName = "admin.sock"

// Host is a running host. Its methods may be called concurrently.
type Host interface {
	Status() Status
	// Swap returns when the new process serves, or with the reason why it does not.
	Swap(ctx context.Context, r SwapRequest) (*supervisor.Swapped, error)
	// Conclude ends the probation or the canary of a swap before its time.
	Conclude(ctx context.Context, r ConcludeRequest) error
	// PlanUpgrade moves no request.
	PlanUpgrade(ctx context.Context, r PlanRequest) (*upgrade.Plan, error)
	Reload(ctx context.Context) (*Reload, error)
	Explain(ctx context.Context, r ExplainRequest) (*Explanation, error)
	Source() Source
	// Shadow returns when requests are being compared, or with the reason why they are not.
	Shadow(ctx context.Context, r ShadowRequest) (*shadow.Summary, error)
	// ShadowReport is what the latest comparison has found, and StopShadow ends it.
	ShadowReport() (*shadow.Report, error)
	StopShadow() (*shadow.Report, error)
	// UpgradeHost returns when another program is about to take the place of the host, or with the reason why none is.
	UpgradeHost(ctx context.Context, r HostUpgradeRequest) error
	// Changed records a change that was asked for on the socket.
	Changed(c Change)

	Diagnostics
}

// ErrStarting is why a host that starts does not change its chain.
var ErrStarting = errors.New("the server is starting: try again when it is ready")

// Status is the state of a running host.
type Status struct {
	Host HostStatus `json:"host"`
	// Faults are what is wrong, the gravest first; it is empty if nothing is.
	Faults []faults.Fault `json:"faults"`
	// Stages are in the order of the chain.
	Stages []supervisor.Status `json:"stages"`
	// Signals are the lifecycle signals so far, in order.
	Signals []Signal `json:"signals"`
	// LastReload is nil if the configuration is that of the start.
	LastReload *Reload `json:"lastReload,omitempty"`
	// Shadow is set while requests are compared.
	Shadow *shadow.Summary `json:"shadow,omitempty"`
	// Claims are those of each stage, as "catena chain" prints them.
	Claims map[string][]string `json:"claims"`
	// Traffic is what each stage has done in the last minute, from head to tail.
	Traffic []traffic.Stage `json:"traffic"`
	// Load has the requests that the stages have now, from head to tail.
	Load []relay.Load `json:"load"`
	// Checks are the health checks of the host and of all stages.
	Checks []Check `json:"checks"`
	// Events are the latest events, the newest last.
	Events []Event `json:"events"`
	// Changes are the latest changes that operators have asked for, the newest last.
	Changes []Change `json:"changes"`
}

// Signal is a lifecycle signal of the server.
type Signal struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// Source is what the configuration of a running host is read from: the layers above the
// defaults, from the lowest to the highest.
type Source struct {
	// Dir is the working directory of the host, to which all paths are relative.
	Dir string `json:"dir"`
	// Files are those of --config.
	Files []string `json:"files,omitempty"`
	// Env are the variables of Catena in the environment, each as NAME=VALUE.
	Env []string `json:"env,omitempty"`
	// Set has KEY=VALUE for each --set.
	Set []string `json:"set,omitempty"`
	// Flags are the other flags that stand for a key.
	Flags []config.CommandFlag `json:"flags,omitempty"`
}

// Validity is the result of a check of a configuration.
type Validity struct {
	Valid  bool          `json:"valid"`
	Errors []ConfigError `json:"errors"`
}

// ConfigError is one thing that is wrong with a configuration.
type ConfigError struct {
	// Source is the path of a file, "env NAME", "--set KEY" or "--FLAG". It is empty, as Line
	// and Key are, if it is not known or part of the message.
	Source  string `json:"source,omitempty"`
	Line    int    `json:"line,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

// SwapRequest asks for a new process of a stage.
type SwapRequest struct {
	Stage string `json:"stage"`
	// Binary is the absolute path of the new binary; empty for the present one.
	Binary string `json:"binary,omitempty"`
	// SHA256 is the digest that the binary must have, in hexadecimal; it approves the binary of a
	// locked stage. Empty if the lock file has to have it.
	SHA256 string `json:"sha256,omitempty"`
	// Rollback takes the place of what the configuration says. Conditions alone are in
	// force for the configured probation, a probation alone is for the configured
	// conditions; if it is zero, the configuration alone counts.
	Rollback supervisor.Rollback `json:"rollback,omitzero"`
	// Allow are names of findings of a plan that are not to keep the stage from another release of
	// Kubernetes.
	Allow []string `json:"allow,omitempty"`
	// Emulate makes the new process serve as the minor release of Kubernetes that serves now.
	Emulate bool `json:"emulate,omitempty"`
	// Finalize, which goes with no binary, ends that.
	Finalize bool `json:"finalize,omitempty"`
	// Canary is how the requests move, nil if all do at once.
	Canary *canary.Plan `json:"canary,omitempty"`
}

// HostUpgradeRequest asks for another program in place of the host.
type HostUpgradeRequest struct {
	// Binary is the absolute path of the program; empty for the present path, which may name another file by now.
	Binary string `json:"binary,omitempty"`
	// Allow has "older" if the program may be of an older release of Kubernetes.
	Allow []string `json:"allow,omitempty"`
}

// ConcludeRequest asks for the end of a probation or a canary.
type ConcludeRequest struct {
	Stage string `json:"stage"`
	// Keep reports whether the new process stays; the old one gets its place back otherwise.
	Keep bool `json:"keep"`
}

// PlanRequest asks what a swap to a binary of another release of Kubernetes would change.
type PlanRequest struct {
	Stage string `json:"stage"`
	// Binary is the absolute path of the binary, SHA256 as that of a SwapRequest.
	Binary string `json:"binary"`
	SHA256 string `json:"sha256,omitempty"`
	// Emulate is that of a SwapRequest.
	Emulate bool `json:"emulate,omitempty"`
	// Sample is how many objects of each resource are compared.
	Sample int `json:"sample"`
}

// ShadowRequest asks for requests of a stage to be compared with what another binary responds to them.
type ShadowRequest struct {
	Stage string `json:"stage"`
	// Binary is the absolute path of the binary, SHA256 as that of a SwapRequest.
	Binary string `json:"binary"`
	SHA256 string `json:"sha256,omitempty"`
	// For is how long that goes on.
	For time.Duration `json:"for"`
	// Sample is the share of the requests, from 0 to 1.
	Sample float64 `json:"sample"`
	// Budget is how many CPUs it may take.
	Budget float64 `json:"budget"`
	// Writes has writes compared too, as dry runs.
	Writes bool `json:"writes,omitempty"`
}

// Reload is the result of a reload of the configuration.
type Reload struct {
	At time.Time `json:"at"`
	// Error is why nothing has changed; empty if the configuration is in effect.
	Error string `json:"error,omitempty"`
	supervisor.Applied
	// Settings are keys whose new value is in effect without a new process.
	Settings []string `json:"settings,omitempty"`
	// Stale are flags whose files have changed since the start of the host, and that only
	// a restart applies.
	Stale []string `json:"stale,omitempty"`
}

// String returns what has changed, for people.
func (r *Reload) String() string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"added", r.Added}, {"removed", r.Removed}, {"swapped", r.Swapped}, {"set", r.Settings}} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+" "+strings.Join(p.names, ", "))
		}
	}
	if r.Reordered {
		parts = append(parts, "reordered")
	}
	text := "applied: " + strings.Join(parts, "; ")
	switch {
	case r.Error != "":
		return "not applied: " + r.Error
	case len(parts) == 0:
		text = "applied, nothing has changed"
	}
	if len(r.Stale) > 0 {
		text += "; only a restart of the host applies the changed files of " + strings.Join(r.Stale, ", ")
	}
	return text
}
