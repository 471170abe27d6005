// Package generation runs one process of a stage: it launches it, takes it through its
// lifecycle, keeps what it reports, asks it for its health and ends it. It decides
// nothing: which generation of a stage serves, and when one is replaced, is the
// supervisor's business.
package generation

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Generation is one process of a stage. Make one with Launch, then call ValidateConfig,
// Configure, PrepareRun and Follow, in this order and each at most once, and in the end
// Stop or Kill. All other methods can be called at any time after PrepareRun from any
// goroutine.
type Generation struct {
	id, token string
	spec      Spec
	opts      *Options
	process   process.Running
	listener  *process.Listener
	// startTimeout bounds each step up to the first request.
	startTimeout      time.Duration
	standby, optional bool
	// ending is done when the process has been asked to end.
	ending context.Context
	end    context.CancelFunc

	// prepared is set by PrepareRun, as are checks, the names of its health checks, events, which Follow takes on, and
	// neverChanges.
	prepared     *stagev1.PrepareRunResponse
	checks       map[string]bool
	events       *eventStream
	neverChanges bool
	// hooksBegun is set when the post-start hooks have been begun.
	hooksBegun atomic.Bool
	health     healthCache

	// void is what was last found that does not count, and shadowed are the paths that have been logged because the host serves
	// them itself. Only Configure, PrepareRun and Follow use them, and limits.
	void     struct{ rejected, ungranted, unclaimed string }
	shadowed map[string]bool
	limits   bounds.LogEvery
	sizes    sizes

	mu sync.Mutex
	// report is what the stage reports, and inherited what counts in its place until all
	// signals have come.
	report    Report
	inherited *Report
	// pending are the mux-and-discovery signals that have not come.
	pending map[string]bool
	// downstream is what the stage was told of the stages downstream.
	downstream []lifecycle.Report[Report]
	// staged are the generations that are brought up in the same change and do not serve yet.
	staged map[string]*Generation
	// hooks has what became of each post-start hook.
	hooks map[string]error
}

// Config says what Launch launches.
type Config struct {
	Spec Spec
	// StartTimeout bounds the launch, ValidateConfig, Configure and PrepareRun, each by
	// itself.
	StartTimeout time.Duration
	// Listener is the data socket: one of its own, or that of the generation whose place it
	// is to take. The caller closes it.
	Listener *process.Listener
	// Standby makes the process wait for Activate before it accepts requests.
	Standby bool
	// Approve, if not nil, is asked before the binary is executed.
	Approve func(process.Contents) error
	// Optional reports whether the server is ready without the stage: those upstream are told.
	Optional bool
	// Reattach reports whether the stage has had a process before. It only matters to a stage
	// that is attached.
	Reattach bool
}

// attachWait is how long an attempt to attach again waits for a process. The stage can be
// changed between two attempts.
const attachWait = time.Second

// Launch starts a process, up to the handshake. An error leaves nothing behind.
func Launch(ctx context.Context, opts *Options, c Config) (*Generation, error) {
	id, err := randomHex(4)
	if err != nil {
		return nil, err
	}
	token, err := randomHex(32)
	if err != nil {
		return nil, err
	}
	g := &Generation{
		id: id, token: token, spec: c.Spec, opts: opts, listener: c.Listener,
		startTimeout: c.StartTimeout, standby: c.Standby, optional: c.Optional,
	}
	spec := process.Spec{
		Stage: c.Spec.Name, ID: id, Limits: c.Spec.KernelLimits, Binary: c.Spec.Binary, SHA256: c.Spec.SHA256,
		Approve: c.Approve, Env: c.Spec.Env, OpenFiles: uint64(c.Spec.OpenFiles),
		Listener: c.Listener, Logger: opts.StageLog, StartTimeout: c.StartTimeout, RuntimeDir: opts.RuntimeDir,
		Isolation: isolation.Process{Spec: c.Spec.Isolation, DataDir: opts.DataDir, Own: opts.Own},
	}
	spec.Trusted = c.Spec.Grants.Trusted()
	spec.Isolation.ManyFiles = spec.Trusted // each watch of a client is a connection
	if opts.Hidden != nil {
		spec.Isolation.Hidden = opts.Hidden()
	}
	if opts.HostSocket != "" {
		spec.Isolation.Sockets = []string{opts.HostSocket}
	}
	if c.Spec.Isolation.Mode != isolation.Off {
		if opts.Machine != nil {
			spec.Machine = opts.Machine()
		}
		sockets, err := g.storeSockets()
		if err != nil {
			return nil, err
		}
		spec.Isolation.Sockets = append(spec.Isolation.Sockets, sockets...)
	}
	if opts.Cgroups != nil && (c.Spec.Isolation.Mode != isolation.Off || c.Spec.KernelLimits != cgroup.Limits{}) {
		spec.Cgroups = opts.Cgroups()
	}
	if c.Spec.Attach != "" {
		spec.Attach, spec.Logger = c.Spec.Attach, opts.Log
		if c.Reattach {
			spec.AttachWait = attachWait
		}
	}
	if g.process, err = process.Connect(ctx, spec); err != nil {
		return nil, err
	}
	g.logIsolation()
	g.ending, g.end = context.WithCancel(context.Background())
	return g, nil
}

// logIsolation logs what this machine lacks to isolate the process.
func (g *Generation) logIsolation() {
	if lacks := g.IsolationLacks(); len(lacks) > 0 {
		g.opts.Log.Warn("isolation is partial: this machine lacks some means",
			"generation", g.id, "by", strings.Join(g.process.Isolation(), ","), "lacks", strings.Join(lacks, "; "))
	}
}

// IsolationLacks says which means this machine lacks to isolate the process, and what it can do for want of each.
func (g *Generation) IsolationLacks() []string {
	var lacks []string
	for _, err := range g.process.IsolationLacks() {
		lacks = append(lacks, err.Error())
	}
	return lacks
}

// NewListener opens a data socket for a generation that is made from spec, or stands for
// that of an attached process.
func NewListener(runtimeDir string, spec Spec) (*process.Listener, error) {
	if spec.Attach != "" {
		return process.AttachedListener(spec.Attach), nil
	}
	return process.NewListener(runtimeDir, spec.Name)
}

func randomHex(bytes int) (string, error) {
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a random token: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// ID identifies the generation in logs and in the status.
func (g *Generation) ID() string { return g.id }

// Name is that of the stage.
func (g *Generation) Name() string { return g.spec.Name }

// Token is what the process proves its identity with when it calls the host.
func (g *Generation) Token() string { return g.token }

// Spec is what the process was made from.
func (g *Generation) Spec() Spec { return g.spec }

// Listener is the data socket.
func (g *Generation) Listener() *process.Listener { return g.listener }

// PID is the id of the process.
func (g *Generation) PID() int { return g.process.PID() }

// Isolation has the names of what isolates the process, as package isolation lists them.
func (g *Generation) Isolation() []string { return g.process.Isolation() }

// Reached counts how often the process, with what it has started, has come to its limits in the kernel.
func (g *Generation) Reached() cgroup.Reached { return g.process.Reached() }

// Version is that of the stage, as it describes itself.
func (g *Generation) Version() string { return g.process.Description().GetVersion() }

// Description is what the stage describes itself as.
func (g *Generation) Description() *stagev1.DescribeResponse { return g.process.Description() }

// CanStandBy reports whether the stage knows how to wait for Activate.
func (g *Generation) CanStandBy() bool { return g.process.Description().GetStandby() }

// Done is closed when the process has ended.
func (g *Generation) Done() <-chan struct{} { return g.process.Done() }

// Err is nil while the process runs, and then says how it has ended.
func (g *Generation) Err() error { return g.process.Err() }
