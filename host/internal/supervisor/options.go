package supervisor

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Options say what the supervisor needs of the host.
type Options struct {
	// Chain are the stages from head to tail.
	Chain []Spec
	// DataDir is the directory in which each stage gets one of its own; RuntimeDir
	// is the directory for sockets.
	DataDir, RuntimeDir string
	// Machine returns what this machine can do to isolate stages. It is called if there are
	// stages to isolate.
	Machine func() *isolation.Machine
	// Hidden returns the files and directories that isolated stages do not see unless they are granted, or nil.
	Hidden func() []string
	// Cgroups returns where processes that are isolated or limited get a group each. It is called
	// if there are any, and may be nil.
	Cgroups func() *cgroup.Tree
	// Flags of the API server, as name=value.
	Flags []string
	// OwnStore returns the flags, as name=value, with which a stage reaches keys of its own in
	// the store. It may be nil.
	OwnStore func(stage string) ([]string, error)
	// HostSocket returns the path of the Unix socket on which a stage calls the host, which listens there by then, and
	// what is called when the stage is gone; nil if none do.
	HostSocket func(stage string) (path string, done func(), err error)
	// Server is told to the stages.
	Server Server
	// HoldTimeout is how long requests wait for a stage that has died to come
	// back, before they are refused.
	HoldTimeout time.Duration
	// HostPaths returns the paths that the host serves itself, whatever stages claim;
	// one that ends with a slash, but for "/", stands for all below it. nil if there are
	// none. It can be called at any time, and must not call the supervisor.
	HostPaths func() []string
	// Approve is asked whether the file of a locked stage may be executed that has another
	// digest than its Spec. nil approves none.
	Approve func(stage, binary string, c process.Contents) error
	// Log gets what the supervisor has to say.
	Log hclog.Logger
	// StageLog returns the logger for what a stage logs; its level is that of new processes.
	StageLog func(stage string) hclog.Logger
}

// Outlet is where the supervisor tells of the chain from Start on.
type Outlet struct {
	// Publish is called with the whole chain, from head to tail, whenever what
	// the relay has to know of it has changed. Split is nil unless a part of the requests goes another way.
	// Calls come one at a time; they must return soon and must not call the supervisor.
	Publish func(chain []Published, split *Split)
	// AwaitEmpty, if it is not nil, returns when the relay has no request left at a
	// socket that is published no longer, or with an error when ctx ends.
	AwaitEmpty func(ctx context.Context, socket string) error
	// ResourceSizes is called with the sizes of stored resources that a stage
	// reports.
	ResourceSizes func([]*stagev1.ResourceSize)
	// Admit is asked by each planned change, before a hook of the new process runs; an error leaves everything as it
	// was. It must not change the chain. nil admits all. The restart of a process that has ended is not asked for.
	Admit func(ctx context.Context, m Move) error
	// Events is called with what happens to the stages, if it is not nil. Calls come one after the other, in the order
	// of the events, and on a goroutine of their own; Start, Swap, Apply, Conclude and Stop return after the calls for
	// what they have done, so that Events must call none of these.
	Events func(Event)
}

// Published is what the relay has to know of a stage.
type Published struct {
	Name string
	// Socket is empty if the stage cannot be reached, because of Failure.
	Socket string
	// Refusal marks the responses of the host itself on Socket, see process.Listener.
	Refusal string
	Failure string
	// Absent reports whether the stage, which is not required, has never come up; Claims are
	// what counts as its own until then.
	Absent bool
	// Held reports whether the process has ended and another will take its place on the same
	// socket in a moment: requests are to wait.
	Held bool
	// Incomplete reports whether the process does not know yet all that it serves, though the stage has before: Claims
	// are those of the one before.
	Incomplete bool
	// Unfinished reports whether the stage has never known all that it serves.
	Unfinished bool
	Claims     []*stagev1.Claim
	// KubernetesVersion is the minor version of Kubernetes as which the stage serves; empty if it
	// does not describe one.
	KubernetesVersion string
	// DiscardsBodies is what the process says of itself.
	DiscardsBodies bool
	// Grants are what the stage may do.
	Grants grants.Grants
	// Paths are for the index at /.
	Paths []string
}

// Split is a part of the requests that goes to other processes of some stages.
type Split struct {
	// Chain is the whole chain for these requests.
	Chain []Published
	// Share is how large the part is, and By what is on one side or the other as a whole. At 1 it is all requests.
	Share float64
	By    canary.By
	// Spread is the time over which the watches end whose side has changed.
	Spread time.Duration
}

// Identity is who calls the host with a generation's token.
type Identity struct {
	Stage, Generation string
	// Socket is that on which the process gets requests.
	Socket string
	User   string
	Groups []string
	// Grants are what the stage may do.
	Grants grants.Grants
	// ReadOnly reports whether the process may not write.
	ReadOnly bool
	// Delegates are the stages downstream of the generation, as it was told when it was
	// configured: those that it may call, whatever the chain has become since.
	Delegates []string
	// Staged are the processes, by stage, that come into the chain together with the
	// generation, itself among them, and do not serve in it yet.
	Staged map[string]Staged
	// Canary reports whether the process is one of those to which the Split goes.
	Canary bool
}

// Staged is a process that does not serve in the chain yet.
type Staged struct {
	Socket string
	Claims []*stagev1.Claim
	Grants grants.Grants
	// OtherAPI reports whether it may serve other resources than the process that serves in the chain: it is of another
	// release of Kubernetes, or has other flags.
	OtherAPI bool
}
