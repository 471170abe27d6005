package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/supervisor/generation"
)

// unprobed is how often the supervisor looks whether a stage that may be silent for ever
// still may.
const unprobed = time.Second

// watchdog kills a generation that serves or stands by and has given no sign of life for
// the stage's liveness timeout. What follows is what follows any end of a process.
func (s *Supervisor) watchdog(st *stage, g *generation.Generation) {
	for alive := time.Now(); ; {
		interval, limit, probe := s.liveness(st, g)
		select {
		case <-time.After(interval):
		case <-g.Done():
			return
		case <-s.background.Done():
			return
		}
		if probe == nil {
			alive = time.Now()
			continue
		}
		ctx, cancel := context.WithTimeout(s.background, interval)
		err := probe(ctx)
		cancel()
		if err == nil {
			alive = time.Now()
			continue
		}
		if stuck := (*generation.StuckError)(nil); errors.As(err, &stuck) && stuck.Since.Before(alive) {
			alive = stuck.Since
		}
		if silent := time.Since(alive); silent >= limit && !s.isStopping() && !s.retired(st, g) {
			st.log.Error("stage gives no sign of life, killing it", "generation", g.ID(),
				"silent", silent.Round(time.Millisecond), "livenessTimeout", limit, "error", err)
			g.Kill()
			return
		}
	}
}

// liveness returns how often a generation is to be probed now, after which silence it is
// killed, and how it is probed; nil if it is not.
func (s *Supervisor) liveness(st *stage, g *generation.Generation) (interval, limit time.Duration, probe func(context.Context) error) {
	now := s.lock()
	defer now.unlock()
	limit = st.spec.LivenessTimeout
	if limit <= 0 || st.state.Retired(g.ID()) {
		return unprobed, 0, nil
	}
	switch st.state.State(g.ID()) {
	case lifecycle.Serving:
		return limit / 4, limit, g.Alive
	case lifecycle.StandingBy: // its data socket is that of the one that serves
		return limit / 4, limit, g.Responds
	}
	return limit / 4, limit, nil
}

func (s *Supervisor) retired(st *stage, g *generation.Generation) bool {
	now := s.lock()
	defer now.unlock()
	return st.state.Retired(g.ID())
}
