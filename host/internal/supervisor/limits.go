package supervisor

import (
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/usage"
)

// Limits bound what one process of a stage uses, together with what it has started. 0 is no
// limit.
type Limits struct {
	// MemorySoft and Memory are in bytes. At the first the stage is swapped to a fresh
	// process, at the second the process is killed.
	MemorySoft, Memory int64
}

// The limits by the names of their keys.
const (
	LimitMemory     = cgroup.Memory
	LimitMemorySoft = "memorySoft"
)

const (
	// sampleInterval is how often processes with a limit of memory are measured, and
	// nearInterval how often those are that have come near to one.
	sampleInterval = time.Second
	nearInterval   = 100 * time.Millisecond
)

// softSwaps spaces the swaps of a stage at its soft limit: one whose processes come to it
// within ten minutes is swapped a minute later at the earliest, then two, up to an hour.
func softSwaps() process.Backoff {
	return process.Backoff{First: time.Minute, Max: time.Hour, Healthy: 10 * time.Minute}
}

// isNear reports whether that many bytes are close to a limit.
func isNear(bytes, limit int64) bool { return limit > 0 && bytes >= limit/4*3 }

// limiter keeps processes within their limits of memory. It is used by one goroutine.
type limiter struct {
	supervisor *Supervisor
	looked     time.Time // at all processes
	watched    map[*generation.Generation]*watchedMemory
	swaps      map[*stage]*swapPace
	counted    time.Time // the limits of the kernel
	reached    map[*generation.Generation]cgroup.Reached
}

// watchedMemory is what the limiter knows of one process.
type watchedMemory struct {
	since time.Time
	usage usage.Usage
	// softAt and hardAt are when it came to its limits.
	softAt, hardAt time.Time
}

// swapPace says when a stage may be swapped at its soft limit.
type swapPace struct {
	backoff process.Backoff
	swaps   int
	next    time.Time
}

// swapped takes note of a swap of a process which had run for that long when it came to
// the limit.
func (p *swapPace) swapped(now time.Time, ran time.Duration) {
	var delay time.Duration
	delay, p.swaps = p.backoff.Next(p.swaps, ran, 0)
	p.next = now.Add(delay)
}

// watchLimits keeps all processes within their limits until Stop.
func (s *Supervisor) watchLimits() {
	l := &limiter{supervisor: s, watched: map[*generation.Generation]*watchedMemory{}, swaps: map[*stage]*swapPace{}}
	l.repeat(func(now time.Time) (time.Duration, error) {
		l.count(now)
		return l.look(now)
	})
}

// repeat calls look, which returns when to do it again, until Stop. An error of it, such as too many open files, passes; it is logged and
// reported when it begins and when it is over. Only on a system that measures nothing does it end.
func (l *limiter) repeat(look func(now time.Time) (again time.Duration, err error)) {
	s, failing := l.supervisor, false
	for interval := sampleInterval; sleep(s.background, interval); {
		again, err := look(time.Now())
		if err != nil {
			again = sampleInterval
		}
		switch {
		case err != nil && !failing:
			s.opts.Log.Error("limits of memory are not in force: processes cannot be measured", "error", err)
			s.events.announce(Event{Kind: LimitsNotInForce, Reason: err.Error()})
		case err == nil && failing:
			s.opts.Log.Info("limits of memory are in force again")
			s.events.announce(Event{Kind: LimitsInForce})
		}
		if errors.Is(err, usage.ErrUnsupported) {
			return
		}
		failing, interval = err != nil, again
	}
}

// limited is a process with a limit.
type limited struct {
	live
	limits  Limits
	serving bool
}

// limited returns the processes with a limit of memory. Those that were started by hand are
// their users'.
func (s *Supervisor) limited() []limited {
	var all []limited
	for _, p := range s.processes() {
		held := s.lock()
		x := limited{live: p, limits: p.stage.guarded.spec.Limits}
		x.serving = p.stage.guarded.current() == p.Generation && p.stage.guarded.machine.State(p.ID()) == lifecycle.Serving
		held.unlock()
		if (x.limits.Memory > 0 || x.limits.MemorySoft > 0) && p.Spec().Attach == "" {
			all = append(all, x)
		}
	}
	return all
}

// look measures the processes, does what their limits demand, and returns when to look
// again.
func (l *limiter) look(now time.Time) (again time.Duration, err error) {
	all := l.supervisor.limited()
	l.keep(all, now)
	if len(all) == 0 {
		return sampleInterval, nil
	}
	full := now.Sub(l.looked) >= sampleInterval
	if full {
		l.looked = now
		measured, err := l.supervisor.measure()
		if err != nil {
			return 0, err
		}
		for _, x := range all {
			l.watched[x.Generation].usage = measured[x.PID()]
		}
	}
	again = sampleInterval
	for _, x := range all {
		w := l.watched[x.Generation]
		if !full && w.near(x.limits) {
			w.usage.Memory = usage.Memory(w.usage.PIDs)
		}
		l.enforce(x, w, now)
		if w.near(x.limits) {
			again = nearInterval
		}
	}
	return again, nil
}

// count counts the processes that have come to limits which the kernel keeps, once in a sampleInterval.
func (l *limiter) count(now time.Time) {
	if now.Sub(l.counted) < sampleInterval {
		return
	}
	reached := map[*generation.Generation]cgroup.Reached{}
	for _, p := range l.supervisor.processes() {
		limits := p.Spec().KernelLimits
		if limits.CPU == 0 && limits.PIDs == 0 {
			continue
		}
		reached[p.Generation] = p.Reached()
		for _, limit := range more(limits, l.reached[p.Generation], reached[p.Generation]) {
			l.supervisor.events.announce(Event{Kind: LimitReached, Stage: p.stage.name, Generation: p.ID(), Limit: limit})
		}
	}
	l.counted, l.reached = now, reached
}

// more are the limits that were reached since. That of memory is told when the process has ended.
func more(limits cgroup.Limits, before, now cgroup.Reached) []string {
	var all []string
	if limits.CPU > 0 && now.CPU > before.CPU {
		all = append(all, cgroup.CPU)
	}
	if limits.PIDs > 0 && now.PIDs > before.PIDs {
		all = append(all, cgroup.PIDs)
	}
	return all
}

// near reports whether the process is close to the next of its limits.
func (w *watchedMemory) near(limits Limits) bool {
	bytes := w.usage.Memory
	return w.softAt.IsZero() && isNear(bytes, limits.MemorySoft) || w.hardAt.IsZero() && isNear(bytes, limits.Memory)
}

// keep forgets the processes and stages that are there no more, and makes new ones known.
func (l *limiter) keep(all []limited, now time.Time) {
	watched, swaps := map[*generation.Generation]*watchedMemory{}, map[*stage]*swapPace{}
	for _, x := range all {
		w, p := l.watched[x.Generation], l.swaps[x.stage]
		if w == nil {
			w = &watchedMemory{since: now}
		}
		if p == nil {
			p = &swapPace{backoff: softSwaps()}
		}
		watched[x.Generation], swaps[x.stage] = w, p
	}
	l.watched, l.swaps = watched, swaps
}

// enforce does what the limits of a process demand.
func (l *limiter) enforce(x limited, w *watchedMemory, now time.Time) {
	bytes := w.usage.Memory
	if hard := x.limits.Memory; hard > 0 && bytes >= hard {
		if w.hardAt.IsZero() {
			w.hardAt = now
			l.kill(x, bytes)
		}
		return
	}
	if soft := x.limits.MemorySoft; soft == 0 || bytes < soft {
		return
	}
	first, pace := w.softAt.IsZero(), l.swaps[x.stage]
	if first {
		w.softAt = now
	}
	reason := reached(x, LimitMemorySoft, bytes, x.limits.MemorySoft)
	wait, begun := pace.next.Sub(now), false
	if wait <= 0 {
		if begun = x.serving && l.supervisor.swapFor(x, reason); begun {
			pace.swapped(now, w.softAt.Sub(w.since))
		}
	}
	if !first {
		return
	}
	then := "it is not the one that serves and goes on"
	switch {
	case begun:
		then = "it is swapped for a fresh one"
	case x.serving && wait > 0:
		then = fmt.Sprintf("it is swapped for a fresh one in %s at the earliest, since the one before was swapped not long ago", wait.Round(time.Second))
	case x.serving:
		then = "it is swapped for a fresh one when the change of the chain that is under way is over"
	}
	l.tell(x, LimitMemorySoft, bytes, x.limits.MemorySoft, reason, then)
}

// reached records that a process has come to a limit, in the words of the status.
func reached(x limited, limit string, bytes, most int64) string {
	return fmt.Sprintf("its memory of %s reached the limit of %s (stages.%s.limits.%s)", mebibytes(bytes),
		mebibytes(most), x.stage.name, limit)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// tell reports that a process has come to a limit.
func (l *limiter) tell(x limited, limit string, bytes, most int64, reason, then string) {
	x.stage.log.Warn("process has reached a limit: "+then, "generation", x.ID(), "pid", x.PID(), "limit", limit,
		"bytes", bytes, "max", most)
	l.supervisor.events.announce(Event{Kind: LimitReached, Stage: x.stage.name, Generation: x.ID(), Limit: limit, Reason: reason})
}

// kill ends a process. What follows is what follows any end of a process.
func (l *limiter) kill(x limited, bytes int64) {
	reason := reached(x, LimitMemory, bytes, x.limits.Memory)
	l.tell(x, LimitMemory, bytes, x.limits.Memory, reason, "it is killed")
	l.supervisor.goFor(nil, func() { x.KillBecause(reason) })
}
