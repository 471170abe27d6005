package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// live is a generation that has not ended, with its stage.
type live struct {
	*generation.Generation
	stage *stage
}

// live is a generation of the stage.
func (s *stage) live(g *generation.Generation) live { return live{g, s} }

// awaitEnd waits for the end of a process and does what has to be done then.
func (l live) awaitEnd() {
	launched := time.Now()
	select {
	case <-l.Done():
	case <-l.stage.of.background.Done():
		return
	}
	l.ended(time.Since(launched))
}

// ended is what happens when a process has ended: the one place where that is decided. It
// returns when another process serves, or when there is nothing more to do.
func (l live) ended(ran time.Duration) {
	s, st := l.stage.of, l.stage
	at, err := time.Now(), l.Err()
	l.killedAtLimit(err)
	held := s.lock()
	retired := st.guarded.machine.Retired(l.ID())
	decision := st.guarded.machine.Ended(l.ID(), err.Error())
	s.callers.Remove(l.Generation)
	st.guarded.usageEnded(l.Generation)
	held.decided(st, l.Generation, decision)
	if !retired && decision != lifecycle.Nothing {
		st.guarded.failure = err.Error()
	}
	held.unlock()
	if !retired && decision != lifecycle.Nothing {
		st.log.Error("stage has ended", "generation", l.ID(), "error", err)
	}
	st.forget(l.Generation)
	switch decision {
	case lifecycle.Accept:
		s.endProbation(fmt.Sprintf("the old generation of stage %q has ended, there is no way back", st.name))
		return
	case lifecycle.RollBack:
		if s.rollBack(fmt.Sprintf("the new generation of stage %q has ended", st.name)) {
			return
		}
		held = s.lock()
		decision = st.guarded.machine.Successor()
		held.decided(st, l.Generation, decision)
		held.unlock()
	}
	if decision == lifecycle.TakeOver {
		if decision = st.takeOver(l.Generation, at); decision == lifecycle.Nothing {
			st.renewStandby(st.nextDelay(process.DefaultBackoff(), ran))
			return
		}
	}
	switch decision {
	case lifecycle.RenewStandby:
		st.standbyFailed(l.ID(), ran, err)
	case lifecycle.Refuse:
		l.Listener().Refuse()
	case lifecycle.Restart:
		held = s.lock()
		limit := held.holdTimeout
		held.unlock()
		hold := time.AfterFunc(limit, func() { st.refuse(l.Generation, limit) })
		defer hold.Stop()
		st.restart(l.Generation, ran)
	}
}

// follow takes in what a generation reports.
func (l live) follow() {
	s, st := l.stage.of, l.stage
	l.Follow(s.background, func(c generation.Change) {
		held := s.lock()
		serves := c.Report && (st.guarded.current() == l.Generation || held.isBeside(l.Generation))
		held.unlock()
		if serves {
			s.publishSoon()
		}
		for _, limit := range c.Limits {
			s.events.announce(Event{Kind: LimitReached, Stage: st.name, Generation: l.ID(), Limit: limit})
		}
		if len(c.Sizes) > 0 && s.outlet.ResourceSizes != nil {
			s.outlet.ResourceSizes(c.Sizes)
		}
	})
}

// runHooks runs the post-start hooks of a generation, which knows of all signals then: core's, for example, do
// something else before the server has been ready than in a process that takes the place of another.
func (l live) runHooks(done func(error)) {
	s := l.stage.of
	s.signals.await(s.background, l.Generation)
	l.RunPostStartHooks(s.background, done)
}

// runHooksOrKill runs the post-start hooks of a generation that serves. One that fails
// ends the process, which is restarted then.
func (l live) runHooksOrKill() {
	l.runHooks(func(err error) {
		if err == nil || l.Err() != nil {
			return
		}
		l.stage.log.Error("ending the stage, which will be restarted", "generation", l.ID(), "error", err)
		l.Kill()
	})
}

// killedAtLimit reports that the kernel has killed a process at a limit, if it has.
func (l live) killedAtLimit(err error) {
	var exit *process.ExitError
	if !errors.As(err, &exit) || exit.Limit == "" {
		return
	}
	l.stage.log.Warn("process has reached a limit: the kernel has killed it", "generation", l.ID(), "pid", exit.PID,
		"limit", exit.Limit, "max", l.Spec().KernelLimits.Memory)
	l.stage.of.events.announce(Event{Kind: LimitReached, Stage: l.stage.name, Generation: l.ID(), Limit: exit.Limit, Reason: exit.Why})
}

// tell tells a generation of all signals in their order, until its process ends. A stage
// that does not want to know is left alone.
func (l live) tell() {
	s := l.stage.of
	defer s.signals.forget(l.Generation)
	for i := 0; ; {
		signal, changed := s.signals.next(l.Generation, i)
		if signal == nil {
			select {
			case <-changed:
				continue
			case <-l.Done():
				return
			case <-s.background.Done():
				return
			}
		}
		ctx, cancel := context.WithTimeout(s.background, notifyTimeout)
		more, err := l.Notify(ctx, signal)
		cancel()
		if !more {
			return
		}
		if err != nil && s.background.Err() == nil && l.Err() == nil {
			l.stage.log.Warn("stage was not told of a signal", "generation", l.ID(), "signal", signal.GetSignal(), "error", err)
		}
		i++
	}
}
