package supervisor

import (
	"time"

	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Spec is one stage of the chain as the configuration declares it.
type Spec struct {
	Name string
	// Binary is the path of the plugin, and SHA256 the digest that it must have, if
	// that is given.
	Binary, SHA256 string
	// Attach, if not empty, is the folder of the sockets of a process that was started by
	// hand with --debug, which is used in the place of one that is started here. It is
	// never killed, and never swapped: who has started it can start another.
	Attach string
	// Digest is that of the file behind Binary as the caller has found it, if it wants
	// Apply to swap the stage whenever the file has changed.
	Digest string
	// Config is the stage's own configuration; nil if there is none.
	Config map[string]any
	// Env is added to the environment of the process.
	Env map[string]string
	// User and Groups are the identity of the stage's calls to the host.
	User   string
	Groups []string
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
	// Required says that the server cannot be ready without the stage, and does not
	// start without it. The configuration's default is true.
	Required bool
	// LastClaims are what the stage claimed when it was last up. They count as its own
	// as long as a stage that is not required has not come up; if there are none,
	// everything that reaches its place in the chain does.
	LastClaims []*stagev1.Claim
	// Standby keeps a second generation ready to take over when the process ends.
	Standby bool
	// Rollback says when a generation that has taken over gives its place back.
	Rollback Rollback
}

// Rollback says for how long the generation that was before is kept after a swap, and
// when it takes its place again. The zero value keeps none.
type Rollback struct {
	// ErrorRate is the part of requests, from 0 to 1, that may fail: with a status of
	// 500 or more, or without an answer. 0 is any.
	ErrorRate float64
	// Health makes a readiness or liveness check that fails twice in a row a reason.
	Health bool
	// Probation is how long the generation is watched; DefaultProbation if 0 and there
	// is something to watch for.
	Probation time.Duration
}

// DefaultProbation is how long a generation is watched if nothing else is said.
const DefaultProbation = time.Minute

// dataSocket opens the socket of a generation, or stands for that of an attached process.
func (s Spec) dataSocket(runtimeDir, generation string) (*process.Listener, error) {
	if s.Attach != "" {
		return process.AttachedListener(s.Attach), nil
	}
	return process.NewListener(runtimeDir, s.Name, generation)
}

// treatedAs returns s with everything from the other that needs no other process.
func (s Spec) treatedAs(other Spec) Spec {
	other.Name, other.Binary, other.Attach, other.SHA256, other.Digest = s.Name, s.Binary, s.Attach, s.SHA256, s.Digest
	other.User, other.Groups, other.Env, other.Config = s.User, s.Groups, s.Env, s.Config
	return other
}

func (r Rollback) wanted() bool { return r.ErrorRate > 0 || r.Health || r.Probation > 0 }
