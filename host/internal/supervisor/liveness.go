package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// unprobed is how often the supervisor looks whether a stage that may be silent for ever
// still may.
const unprobed = time.Second

// watchdog kills a generation that serves or stands by and has given no sign of life for
// the stage's liveness timeout. What follows is what follows any end of a process.
func (l live) watchdog() {
	s, st := l.stage.of, l.stage
	for alive := time.Now(); ; {
		interval, limit, probe := l.liveness()
		select {
		case <-time.After(interval):
		case <-l.Done():
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
		if silent := time.Since(alive); silent >= limit && !s.isStopping() && !l.retired() {
			st.log.Error("stage gives no sign of life, killing it", "generation", l.ID(),
				"silent", silent.Round(time.Millisecond), "livenessTimeout", limit, "error", err)
			l.Kill()
			return
		}
	}
}

// liveness returns how often a generation is to be probed now, after which silence it is
// killed, and how it is probed; nil if it is not.
func (l live) liveness() (interval, limit time.Duration, probe func(context.Context) error) {
	st := l.stage
	held := l.stage.of.lock()
	defer held.unlock()
	limit = st.guarded.spec.LivenessTimeout
	if limit <= 0 || st.guarded.machine.Retired(l.ID()) {
		return unprobed, 0, nil
	}
	switch st.guarded.machine.State(l.ID()) {
	case lifecycle.Serving:
		return limit / 4, limit, l.Alive
	case lifecycle.StandingBy: // its data socket is that of the one that serves
		return limit / 4, limit, l.Responds
	}
	return limit / 4, limit, nil
}

func (l live) retired() bool {
	held := l.stage.of.lock()
	defer held.unlock()
	return l.stage.guarded.machine.Retired(l.ID())
}
