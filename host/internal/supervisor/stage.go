package supervisor

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// report is what a stage says of itself when it is configured and prepared.
type report struct {
	paths  []string
	claims []*stagev1.Claim
}

// stage is one link of the chain at run time: what outlives its processes.
type stage struct {
	name    string
	opts    *Options
	log     hclog.Logger // what the supervisor says of the stage
	output  hclog.Logger // what the stage says
	dataDir string
	// changing is held while a generation of the stage is brought up: by a start,
	// a restart or a swap.
	changing sync.Mutex

	mu   sync.Mutex
	spec Spec
	// current is the generation that the host relays to, nil before the first, whose
	// signals are those of the server.
	current, first *generation
	restarts       int
	failures       int // in a row
	// down says that requests are not to wait for the next generation any longer.
	down    bool
	failure string // why the last generation ended
}

func (s *stage) generation() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// become makes g the generation that the host relays to, and returns the one that
// was. What g was made from is what the stage is made from now on.
func (s *stage) become(g *generation) *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current
	if old == nil {
		s.first = g
	}
	s.current, s.spec, s.down = g, g.spec, false
	return old
}

func (s *stage) firstGeneration() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// incomplete tells whether the stage may have paths that it does not know yet.
func (s *stage) incomplete() bool {
	g := s.generation()
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.complete()
}

// published is what the relay has to know of the stage.
func (s *stage) published() Published {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Published{Name: s.spec.Name, Failure: s.failure}
	if s.current == nil {
		return p
	}
	r := s.current.reported()
	p.Claims, p.Paths = r.claims, r.paths
	if !s.down {
		p.Socket = s.current.listener.Path()
	}
	return p
}

// behind are the latest reports of the stages behind this one, the nearest first.
func (s *stage) behind(chain []*stage) []lifecycle.Report[report] {
	var behind []lifecycle.Report[report]
	found := false
	for _, st := range chain {
		if found {
			r := report{}
			if g := st.generation(); g != nil {
				r = g.reported()
			}
			behind = append(behind, lifecycle.Report[report]{Stage: st.name, Report: r})
		}
		found = found || st == s
	}
	return behind
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

// processSpec is what a generation's process is started from.
func (g *generation) processSpec() process.Spec {
	return process.Spec{
		Stage:        g.spec.Name,
		Attach:       g.spec.Attach,
		Binary:       g.spec.Binary,
		SHA256:       g.spec.SHA256,
		Listener:     g.listener,
		Env:          g.spec.Env,
		Logger:       g.stage.output,
		StartTimeout: g.spec.StartTimeout,
		RuntimeDir:   g.stage.opts.RuntimeDir,
	}
}
