package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// stage is one link of the chain at run time: what outlives its processes.
type stage struct {
	name    string
	opts    *Options
	log     hclog.Logger // what the supervisor says of the stage
	output  hclog.Logger // what the stage says
	dataDir string
	// changing is taken while a generation of the stage is brought up: by a restart or a
	// planned change. The restart of a stage that was up does not wait for a change.
	changing turn

	mu   sync.Mutex
	spec Spec
	// current is the generation that the host relays to, nil before the first, whose
	// signals are those of the server.
	current, first *generation
	standby        *generation
	standbyFailure string
	// keeper is the number of the latest who is to make a standby.
	keeper int
	// restarts is how often another generation has taken the place of one that had ended,
	// failures how often none came up, in a row.
	restarts, failures int
	// held says that requests are to wait for the next generation, down that they are
	// not to any longer.
	held, down bool
	// gone says that the stage has been removed from the chain.
	gone     bool
	failure  string // why the last generation ended
	lastSwap *SwapResult
}

// newStage makes a stage that is not in the chain yet, with its folder.
func (s *Supervisor) newStage(spec Spec) (*stage, error) {
	dir := filepath.Join(s.opts.DataDir, "stages", spec.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder of stage %q: %w", spec.Name, err)
	}
	return &stage{
		name: spec.Name, spec: spec, opts: &s.opts, changing: newTurn(), dataDir: dir,
		log: s.opts.Log.With("stage", spec.Name), output: s.opts.StageLog.Named(spec.Name),
	}, nil
}

func (s *stage) generation() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// present is what the stage is made from now.
func (s *stage) present() Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec
}

// become makes g the generation that the host relays to. What its process was made from
// is what the stage is made from now on; how that is treated may have been changed since.
func (s *stage) become(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = g
	}
	s.current, s.spec, s.down, s.held = g, g.spec.treatedAs(s.spec), false, false
}

func (s *stage) firstGeneration() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// setGone says whether the stage has been removed from the chain.
func (s *stage) setGone(gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
}

// waitsFor tells whether the stage still is to get a generation in the place of dead.
func (s *stage) waitsFor(dead *generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current == dead && !s.gone
}

// incomplete tells whether the stage may have paths that it does not know yet. A stage
// that has not come up has claims all the same.
func (s *stage) incomplete() bool {
	g := s.generation()
	if g == nil {
		return s.present().Required
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.complete()
}

// published is what the relay has to know of the stage.
func (s *stage) published() Published {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Published{Name: s.name, Failure: s.failure}
	if s.current == nil {
		if !s.spec.Required {
			p.Absent, p.Claims = true, assumed(s.spec.LastClaims)
		}
		return p
	}
	r := s.current.reported()
	p.Claims, p.Paths = r.claims, r.paths
	if !s.down {
		p.Socket, p.Refusal, p.Held = s.current.listener.Path(), s.current.listener.Refusal(), s.held
	}
	return p
}

// assumed are the claims of a stage that has not come up: those that it had when it was
// last up, or everything, since nobody knows what is not its own.
func assumed(last []*stagev1.Claim) []*stagev1.Claim {
	if len(last) > 0 {
		return last
	}
	return []*stagev1.Claim{{Path: "/", Match: stagev1.Claim_PREFIX}}
}

// latest is the latest report of the stage; it is empty if it has never been up.
func (s *stage) latest() report {
	if g := s.generation(); g != nil {
		return g.reported()
	}
	return report{}
}

// behind are the latest reports of the stages behind this one, the nearest first.
func (s *stage) behind(chain []*stage) []lifecycle.Report[report] {
	var behind []lifecycle.Report[report]
	found := false
	for _, st := range chain {
		if found {
			behind = append(behind, lifecycle.Report[report]{Stage: st.name, Report: st.latest()})
		}
		found = found || st == s
	}
	return behind
}

// emit tells of an event of the stage.
func (s *stage) emit(e Event) {
	if s.opts.Events == nil {
		return
	}
	e.Stage = s.name
	if e.At.IsZero() {
		e.At = time.Now()
	}
	s.opts.Events(e)
}

// configureRequest is what Configure tells a generation.
func (g *generation) configureRequest(behind []lifecycle.Report[report]) (*stagev1.ConfigureRequest, error) {
	own, err := json.Marshal(g.spec.Config)
	if err != nil {
		return nil, fmt.Errorf("encode stages.%s.config: %w", g.spec.Name, err)
	}
	opts := g.stage.opts
	req := &stagev1.ConfigureRequest{
		Name:       g.spec.Name,
		Config:     own,
		Flags:      opts.Flags,
		DataDir:    g.stage.dataDir,
		Generation: g.id,
		Standby:    g.standby,
		Host: &stagev1.Host{
			Socket:        opts.HostSocket,
			Token:         g.token,
			User:          g.spec.User,
			Groups:        g.spec.Groups,
			ServerVersion: opts.ServerVersion,
			ExternalUrl:   opts.ExternalURL,
		},
	}
	for _, b := range behind {
		req.Delegates = append(req.Delegates, &stagev1.Delegate{
			Name: b.Stage, ListedPaths: b.Report.paths, Claims: b.Report.claims,
		})
	}
	return req, nil
}

// attachWait is how long a try to attach again waits for a process. The stage can be
// changed between two tries.
const attachWait = time.Second

// processSpec is what a generation's process is started from.
func (g *generation) processSpec() process.Spec {
	logger, wait := g.stage.output, time.Duration(0)
	if g.spec.Attach != "" {
		logger = g.stage.log
		if g.stage.generation() != nil {
			wait = attachWait
		}
	}
	return process.Spec{
		Stage:        g.spec.Name,
		Binary:       g.spec.Binary,
		Attach:       g.spec.Attach,
		AttachWait:   wait,
		SHA256:       g.spec.SHA256,
		Listener:     g.listener,
		Env:          g.spec.Env,
		Logger:       logger,
		StartTimeout: g.spec.StartTimeout,
		RuntimeDir:   g.stage.opts.RuntimeDir,
	}
}
