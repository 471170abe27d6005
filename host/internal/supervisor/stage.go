package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// stage is one stage of the chain at run time: what outlives its processes.
type stage struct {
	of   *Supervisor
	gone func() // is due when it has left the chain, and has no process; it may be called twice
	name string
	log  hclog.Logger
	opts generation.Options
	// launching is held while a generation of the stage is brought up by a restart or a
	// planned change. The restart of a stage that was up does not wait for a change.
	launching *semaphore.Weighted

	guarded stageState
}

// stageState is what the supervisor's lock guards of a stage: all that changes.
type stageState struct {
	spec    Spec
	machine *lifecycle.Stage
	// generations are those whose process has not ended, and the current one.
	generations map[string]*generation.Generation
	// endStandby cancels the goroutine that brings up a standby.
	endStandby      func()
	standbyFailure  string
	standbyFailures int
	// restarts are those at which another generation has taken the place of one that had ended,
	// failures how many ended early, or did not come up, in a row since the latest planned
	// change, and nextStart when it is tried again.
	restarts     restarts
	failures     int
	nextStart    time.Time
	failure      string // why the last generation ended
	wasComplete  bool   // a generation has known all of its paths
	lastSwap     *SwapResult
	otherRelease string // that it has come back from a binary of another, since the latest planned change
	// used is what was measured of the processes that have not ended, and cpu the time of
	// those that have.
	used map[*generation.Generation]measurement
	cpu  time.Duration
}

// recently is the time for which each restart is remembered.
const recently = 15 * time.Minute

// restarts counts those of a stage.
type restarts struct {
	total  int
	recent []time.Time
}

// add counts one at a time, which is not before the others.
func (r *restarts) add(at time.Time) {
	r.total++
	r.recent = append(r.recent[len(r.recent)-r.since(at.Add(-recently)):], at)
}

// since is how many have been since a time, which is not longer ago than recently.
func (r *restarts) since(t time.Time) int {
	n := 0
	for _, at := range r.recent {
		if at.After(t) {
			n++
		}
	}
	return n
}

// newStage makes a stage that is not in the chain yet, with its directory.
func (s *Supervisor) newStage(spec Spec) (*stage, error) {
	dir := filepath.Join(s.opts.DataDir, "stages", spec.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory of stage %q: %w", spec.Name, err)
	}
	hostSocket, gone := "", func() {}
	if s.opts.HostSocket != nil {
		var err error
		if hostSocket, gone, err = s.opts.HostSocket(spec.Name); err != nil {
			return nil, err
		}
	}
	st := &stage{
		of: s, gone: gone, name: spec.Name, log: s.opts.Log.With("stage", spec.Name), launching: semaphore.NewWeighted(1),
		guarded: stageState{
			spec: spec, generations: map[string]*generation.Generation{}, endStandby: func() {},
			used: map[*generation.Generation]measurement{},
		},
	}
	st.opts = generation.Options{
		DataDir: dir, Own: []string{s.opts.DataDir, s.opts.RuntimeDir}, Hidden: s.opts.Hidden, Machine: s.opts.Machine,
		Cgroups:    s.opts.Cgroups,
		RuntimeDir: s.opts.RuntimeDir, Flags: s.opts.Flags, OwnStore: s.opts.OwnStore, HostSocket: hostSocket,
		Server: s.opts.Server, HostPaths: s.opts.HostPaths,
		Log: st.log, StageLog: s.opts.StageLog(spec.Name),
	}
	st.guarded.machine = lifecycle.NewStage(time.Now, func(id string, t lifecycle.Transition) {
		s.events.add(func() {
			st.log.Debug("stage changed state", "generation", id, "from", t.From, "to", t.To, "reason", t.Reason)
		})
		s.events.emit(Event{Kind: StateChanged, Stage: st.name, Generation: id, From: t.From.String(),
			To: t.To.String(), Reason: t.Reason, At: t.At})
	})
	return st, nil
}

// current is the generation that the requests go to, nil before the first. It may have
// ended.
func (s *stageState) current() *generation.Generation {
	return s.generations[s.machine.Current()]
}

// report is the latest of the stage; it is empty if it has never been up.
func (s *stageState) report() generation.Report {
	if g := s.current(); g != nil {
		return g.Report()
	}
	return generation.Report{}
}

// uses reports whether a generation has that data socket.
func (s *stageState) uses(l *process.Listener) bool {
	for _, g := range s.generations {
		if g.Listener() == l {
			return true
		}
	}
	return false
}

// forget drops generations that have ended, and closes the data sockets that no other
// generation has. The current one of a stage in the chain stays until Stop, whether it has
// ended or not: what it claims is its stage's.
func (s *stage) forget(all ...*generation.Generation) {
	held := s.of.lock()
	unused := map[*generation.Generation]bool{}
	inChain := slices.Contains(held.chain, s)
	for _, g := range all {
		if s.guarded.generations[g.ID()] == nil || inChain && s.guarded.machine.Current() == g.ID() && s.of.background.Err() == nil {
			continue
		}
		delete(s.guarded.generations, g.ID())
		s.of.callers.Remove(g)
		s.guarded.machine.Forget(g.ID())
		unused[g] = !s.guarded.uses(g.Listener())
	}
	left := len(s.guarded.generations) == 0 && !inChain
	if left {
		delete(held.stages, s)
	}
	held.unlock()
	if left {
		s.gone()
	}
	for g, unused := range unused {
		if !unused {
			continue
		}
		g.Listener().Refuse()
		if err := g.Listener().Close(); err != nil {
			s.log.Warn("data socket could not be closed", "generation", g.ID(), "error", err)
		}
	}
}

// adopt takes over from spec what needs no other process, and reports whether that changes
// whether the stage has a standby.
func (s *stageState) adopt(spec Spec) (standbyChanged bool) {
	standbyChanged = s.spec.Standby != spec.Standby
	s.spec.Policy = spec.Policy
	return standbyChanged
}

// publishedOf is what the relay has to know of a generation.
func (s *stage) publishedOf(g *generation.Generation) Published {
	r := g.Report()
	return Published{
		Name: s.name, Claims: r.Claims, Paths: r.Paths, KubernetesVersion: r.KubernetesVersion, Grants: g.Spec().Grants,
		DiscardsBodies: g.Description().GetDiscardsBodies(),
		Socket:         g.Listener().Path(), Refusal: g.Listener().Refusal(),
	}
}

// published is what the relay has to know of the stage.
func (s *stage) published(*locked) Published {
	g := s.guarded.current()
	if g == nil {
		p := Published{Name: s.name, Failure: s.guarded.failure, Grants: s.guarded.spec.Grants}
		if !s.guarded.spec.Required {
			p.Absent, p.Claims = true, knownClaims(s.guarded.spec.LastClaims)
		}
		return p
	}
	p := s.publishedOf(g)
	p.Failure = s.guarded.failure
	switch s.guarded.machine.Requests() {
	case lifecycle.Refused:
		p.Socket, p.Refusal = "", ""
	case lifecycle.Held:
		p.Held = true
	}
	return p
}

// knownClaims are the claims of a stage that has not come up: those that it had when it was
// last up, or everything, since it is not known what is not its own.
func knownClaims(last []*stagev1.Claim) []*stagev1.Claim {
	if len(last) > 0 {
		return last
	}
	return []*stagev1.Claim{{Path: "/", Match: stagev1.Claim_PREFIX}}
}

// ID is the id of a generation, or empty.
func id(g *generation.Generation) string {
	if g == nil {
		return ""
	}
	return g.ID()
}
