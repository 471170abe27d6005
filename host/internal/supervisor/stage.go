package supervisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Spec is one stage of the chain as the configuration declares it.
type Spec struct {
	Name string
	// Binary is the path of the plugin, and SHA256 the digest that it must have, if
	// that is given.
	Binary, SHA256 string
	// Config is the stage's own configuration; nil if there is none.
	Config map[string]any
	// Env is added to the environment of the process.
	Env map[string]string
	// User and Groups are the identity of the stage's calls to the host.
	User   string
	Groups []string
	// StartTimeout bounds launch, Configure and PrepareRun together.
	StartTimeout time.Duration
}

// report is what a stage says of itself when it is configured and prepared.
type report struct {
	paths  []string
	claims []*stagev1.Claim
}

// stage is one link of the chain at run time: what outlives its processes.
type stage struct {
	spec     Spec
	opts     *Options
	log      hclog.Logger // what the supervisor says of the stage
	output   hclog.Logger // what the stage says
	listener *process.Listener
	dataDir  string
	// signals are the stage's mux-and-discovery signals, known after its first
	// PrepareRun.
	signals map[string]chan struct{}

	// failures in a row; only the one goroutine that supervises the stage uses it.
	failures int

	mu      sync.Mutex
	current *generation
	report  report
}

// Name implements lifecycle.Link.
func (s *stage) Name() string { return s.spec.Name }

// Configure implements lifecycle.Link for the current generation.
func (s *stage) Configure(ctx context.Context, behind []lifecycle.Report[report]) (report, error) {
	r, err := s.generation().configure(ctx, behind)
	if err != nil {
		return report{}, err
	}
	s.setReport(r)
	return r, nil
}

// PrepareRun implements lifecycle.Link for the current generation.
func (s *stage) PrepareRun(ctx context.Context) error {
	r, err := s.generation().prepareRun(ctx)
	if err != nil {
		return err
	}
	s.setReport(r)
	return nil
}

func (s *stage) generation() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *stage) setReport(r report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = r
}

func (s *stage) reported() report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

// signaled closes the channels of the signals of those names.
func (s *stage) signaled(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		ch, ok := s.signals[name]
		if !ok {
			continue
		}
		select {
		case <-ch:
		default:
			close(ch)
		}
	}
}

// launch starts a process of the stage, up to the handshake.
func (s *stage) launch(ctx context.Context) (*generation, error) {
	id, err := randomHex(4)
	if err != nil {
		return nil, err
	}
	token, err := randomHex(32)
	if err != nil {
		return nil, err
	}
	g := &generation{id: id, token: token, stage: s}
	g.machine = lifecycle.NewMachine(time.Now, func(t lifecycle.Transition) {
		s.log.Debug("stage changed state", "generation", id, "from", t.From, "to", t.To, "reason", t.Reason)
	})
	g.proc, err = process.Start(ctx, process.Spec{
		Stage:        s.spec.Name,
		Binary:       s.spec.Binary,
		SHA256:       s.spec.SHA256,
		Listener:     s.listener,
		Env:          s.spec.Env,
		Logger:       s.output,
		StartTimeout: s.spec.StartTimeout,
		RuntimeDir:   s.opts.RuntimeDir,
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.current = g
	s.mu.Unlock()
	return g, nil
}

// configureRequest is what Configure tells a generation of the stage.
func (s *stage) configureRequest(g *generation, behind []lifecycle.Report[report]) (*stagev1.ConfigureRequest, error) {
	own, err := json.Marshal(s.spec.Config)
	if err != nil {
		return nil, fmt.Errorf("encode stages.%s.config: %w", s.spec.Name, err)
	}
	req := &stagev1.ConfigureRequest{
		Name:       s.spec.Name,
		Config:     own,
		Flags:      s.opts.Flags,
		DataDir:    s.dataDir,
		Generation: g.id,
		Host: &stagev1.Host{
			Socket:        s.opts.HostSocket,
			Token:         g.token,
			User:          s.spec.User,
			Groups:        s.spec.Groups,
			ServerVersion: s.opts.ServerVersion,
			ExternalUrl:   s.opts.ExternalURL,
		},
	}
	for _, b := range behind {
		req.Delegates = append(req.Delegates, &stagev1.Delegate{
			Name: b.Stage, ListedPaths: b.Report.paths, Claims: b.Report.claims,
		})
	}
	return req, nil
}

func randomHex(bytes int) (string, error) {
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a random token: %w", err)
	}
	return hex.EncodeToString(b), nil
}
