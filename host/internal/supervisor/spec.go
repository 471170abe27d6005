package supervisor

import (
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Process is what the process of a stage is made from.
type Process = generation.Spec

// Server is what stages are told of the server.
type Server = generation.Server

// EmulatedVersion is the flag by which a stage serves as an older release of Kubernetes.
const EmulatedVersion = generation.EmulatedVersion

// Emulates is the minor release as which a stage serves whose binary is of a release; empty if it is that of the
// binary, whatever flag it has, or that of all stages.
func Emulates(p Process, release string) string {
	minor := p.Emulates()
	if strings.HasPrefix(strings.TrimPrefix(release, "v"), minor+".") {
		return ""
	}
	return minor
}

// Spec is one stage of the chain as the configuration declares it.
type Spec struct {
	// Process cannot change without another process.
	Process
	// Policy can.
	Policy
}

// Policy is how the supervisor treats the processes of a stage.
type Policy struct {
	// StartTimeout bounds the launch, ValidateConfig, Configure, PrepareRun and, in a swap,
	// the time until the generation is ready, each by itself.
	StartTimeout time.Duration
	// LivenessTimeout is how long a stage may be silent before its process is
	// killed and started anew; 0 is forever.
	LivenessTimeout time.Duration
	// DrainTimeout bounds how long a generation that has been replaced may go on
	// with the requests that it has, and DrainSpread is the time over which its
	// watches are ended.
	DrainTimeout, DrainSpread time.Duration
	// Required reports whether the server cannot be ready without the stage, and does not
	// start without it. The configuration's default is true.
	Required bool
	// LastClaims are what the stage claimed when it was last up. They count as its own
	// as long as a stage that is not required has not come up; if there are none,
	// everything that reaches its place in the chain, and that it may claim, does.
	LastClaims []*stagev1.Claim
	// Locked reports whether only a file with Digest is executed, or one that Options.Approve approves.
	Locked bool
	// OwnProgram reports whether it need not be locked as the program of this process: another in its place has to be.
	OwnProgram bool
	// Standby keeps a second generation ready to take over when the process ends.
	Standby bool
	// Limits bound what each process uses.
	Limits Limits
	// Rollback says when a generation that has taken over gives its place back.
	Rollback Rollback
}

// Rollback says for how long the generation that was before is kept after a swap, and
// when it takes its place again. The zero value keeps none.
type Rollback struct {
	// ErrorRate is the part of requests, from 0 to 1, that may fail: with a status of
	// 500 or more, or without a response. 0 is any.
	ErrorRate float64
	// Health makes a readiness or liveness check that fails twice in a row a reason.
	Health bool
	// Probation is how long the generation is watched. It is not if it is 0.
	Probation time.Duration
}

func (r Rollback) wanted() bool { return r.Probation > 0 }
