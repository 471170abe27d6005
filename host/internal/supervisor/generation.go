package supervisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/schema"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// generation is one process of a stage.
type generation struct {
	id, token string
	stage     *stage
	spec      Spec
	// listener is the data socket: of its own, or that of the generation that it
	// takes the place of.
	listener *process.Listener
	// standby says that it was configured to wait for Activate.
	standby bool
	machine *lifecycle.Machine
	proc    process.Running
	// retired is set when its end is wanted, so that it is not restarted.
	retired atomic.Bool
	// hooksRun is set when its post-start hooks have been begun.
	hooksRun atomic.Bool
	// staged are the sockets of delegates that are brought up in the same change, for as
	// long as that is under way.
	staged atomic.Pointer[map[string]string]

	// prepared and signals are set by PrepareRun, before the generation serves.
	prepared *stagev1.PrepareRunResponse
	signals  map[string]chan struct{}
	hooks    hookStates
	health   healthCache

	mu     sync.Mutex
	report report
	// complaint is what has been said of claims that do not count.
	complaint string
	// vain are the claims of which has been said that the host answers for them.
	vain map[string]bool
	// behind is what it has been told of the stages behind it.
	behind []lifecycle.Report[report]
	// inherited is what is reported in the place of report until all signals have come.
	inherited *report
}

// newGeneration starts a process, up to the handshake.
func (s *Supervisor) newGeneration(ctx context.Context, st *stage, spec Spec, listener *process.Listener) (*generation, error) {
	id, err := randomHex(4)
	if err != nil {
		return nil, err
	}
	token, err := randomHex(32)
	if err != nil {
		return nil, err
	}
	g := &generation{id: id, token: token, stage: st, spec: spec, listener: listener}
	g.machine = lifecycle.NewMachine(time.Now, func(t lifecycle.Transition) {
		st.log.Debug("stage changed state", "generation", id, "from", t.From, "to", t.To, "reason", t.Reason)
		st.emit(Event{Kind: StateChanged, Generation: id, From: t.From.String(), To: t.To.String(), Reason: t.Reason, At: t.At})
	})
	if g.proc, err = process.Connect(ctx, g.processSpec()); err != nil {
		return nil, err
	}
	return g, nil
}

// Name implements lifecycle.Link.
func (g *generation) Name() string { return g.spec.Name }

// validateConfig checks the stage's configuration against the schema that the stage
// describes, and then has the stage check it. The error joins the problems.
func (g *generation) validateConfig(ctx context.Context) error {
	problems, err := schema.Check(g.proc.Description().GetConfigSchema(), g.spec.Config)
	if err != nil {
		return fmt.Errorf("stage %q: %w", g.Name(), err)
	}
	if len(problems) > 0 {
		return schema.Errors(g.Name(), problems)
	}
	own, err := json.Marshal(g.spec.Config)
	if err != nil {
		return fmt.Errorf("encode stages.%s.config: %w", g.Name(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, g.spec.StartTimeout)
	defer cancel()
	resp, err := g.proc.Client().ValidateConfig(ctx, &stagev1.ValidateConfigRequest{Config: own, Flags: g.stage.opts.Flags})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range resp.GetProblems() {
		key := "stages." + g.Name() + ".config"
		if p.GetKey() != "" {
			key += "." + p.GetKey()
		}
		errs = append(errs, fmt.Errorf("%s: %s (says stage %q)", key, p.GetMessage(), g.Name()))
	}
	return errors.Join(errs...)
}

// Configure implements lifecycle.Link.
func (g *generation) Configure(ctx context.Context, behind []lifecycle.Report[report]) (report, error) {
	if err := g.machine.To(lifecycle.Configuring, ""); err != nil {
		return report{}, err
	}
	g.mu.Lock()
	g.behind = behind
	g.mu.Unlock()
	req, err := g.configureRequest(behind)
	if err != nil {
		return report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.spec.StartTimeout)
	defer cancel()
	resp, err := g.proc.Client().Configure(ctx, req)
	if err != nil {
		return report{}, err
	}
	r := report{paths: resp.GetListedPaths(), claims: resp.GetClaims(), configured: resp.GetListedPaths()}
	g.mu.Lock()
	g.report = r
	g.mu.Unlock()
	return r, nil
}

// PrepareRun implements lifecycle.Link.
func (g *generation) PrepareRun(ctx context.Context) error {
	if err := g.machine.To(lifecycle.Preparing, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, g.spec.StartTimeout)
	defer cancel()
	resp, err := g.proc.Client().PrepareRun(ctx, &stagev1.PrepareRunRequest{})
	if status.Code(err) == codes.Unimplemented {
		// Nothing to prepare, and what Configure reported is all there is.
		r := g.reported()
		resp, err = &stagev1.PrepareRunResponse{ListedPaths: r.paths, Claims: r.claims}, nil
	}
	if err != nil {
		return err
	}
	g.prepared = resp
	g.hooks.expect(resp.GetPostStartHooks())
	g.signals = make(map[string]chan struct{})
	for _, name := range resp.GetMuxAndDiscoverySignals() {
		g.signals[name] = make(chan struct{})
	}
	g.setReport(resp.GetListedPaths(), resp.GetClaims())
	return nil
}

// watch follows what the stage reports until the process ends or ctx does.
func (g *generation) watch(ctx context.Context, event func(*generation, *stagev1.Event)) {
	stream, err := g.proc.Client().Watch(ctx, &stagev1.WatchRequest{})
	for err == nil {
		var e *stagev1.Event
		if e, err = stream.Recv(); err == nil {
			event(g, e)
		}
	}
	if ctx.Err() == nil && !errors.Is(err, io.EOF) && status.Code(err) != codes.Unimplemented {
		g.stage.log.Debug("stage ended its event stream", "generation", g.id, "error", err)
	}
}

// drain makes the stage end its long running requests and waits for the rest,
// until ctx ends.
func (g *generation) drain(ctx context.Context, spread time.Duration) {
	if err := g.machine.To(lifecycle.Draining, ""); err != nil {
		return
	}
	resp, err := g.proc.Client().Drain(ctx, &stagev1.DrainRequest{Spread: durationpb.New(spread)})
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case err != nil && status.Code(err) != codes.Unimplemented:
		g.stage.log.Warn("stage could not be drained", "generation", g.id, "error", err)
	case resp.GetRunning() > 0:
		g.stage.log.Warn("stage still had requests at the end of its drain", "generation", g.id, "requests", resp.GetRunning())
	}
}

// stop ends the process, with Stop first and by force when ctx ends.
func (g *generation) stop(ctx context.Context, reason string) {
	g.retired.Store(true)
	if err := g.proc.Stop(ctx); err != nil && g.machine.State() != lifecycle.Failed {
		g.stage.log.Warn("stage did not stop by itself", "generation", g.id, "error", err)
	}
	_ = g.machine.To(lifecycle.Stopped, reason)
}

func randomHex(bytes int) (string, error) {
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a random token: %w", err)
	}
	return hex.EncodeToString(b), nil
}
