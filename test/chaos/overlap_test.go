package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// These events hit a stage while it is being swapped, or on probation.
func overlaps() []event {
	return []event{
		{"killed in swap", crashInSwap, inChain, killedInSwap},
		{"both killed", crashInSwap, inChain, bothKilled},
	}
}

// killedInSwap kills the old process or the new one, at a moment between the beginning of a
// swap and a little after the duration of the latest one. In either case the swap may
// succeed or fail, and the stage must serve in the end.
func killedInSwap(ctx context.Context, s *site, stage string) error {
	killOld, moment := s.random.IntN(2) == 0, s.random.Float64()
	victim, err := s.serving(ctx, stage)
	if err != nil {
		return err
	}
	before := s.processes(stage)
	timer := time.After(time.Duration(moment * 1.25 * float64(s.swapTime(stage))))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.Command(ctx, "swap", stage)
	}()
	<-timer
	if !killOld {
		if victim = s.awaitNew(stage, before, ended); victim == 0 {
			return fmt.Errorf("the swap has ended without a new process")
		}
	}
	_ = syscall.Kill(victim, syscall.SIGKILL) // it may have ended by now
	<-ended
	return s.awaitGone(ctx, stage, victim)
}

// bothKilled kills both processes of a stage during a probation, when each could take over
// from the other, in any order, the second at once or a little later.
func bothKilled(ctx context.Context, s *site, stage string) error {
	oldFirst, pause := s.random.IntN(2) == 0, time.Duration(s.random.IntN(200))*time.Millisecond
	if s.random.IntN(2) == 0 {
		pause = 0
	}
	first, err := s.serving(ctx, stage)
	if err == nil {
		_, err = s.Command(ctx, "swap", stage, "--rollback-on", "health", "--probation", "5m")
	}
	if err != nil {
		return err
	}
	second, err := s.serving(ctx, stage)
	if err != nil {
		return err
	}
	if !oldFirst {
		first, second = second, first
	}
	if err := errors.Join(syscall.Kill(first, syscall.SIGKILL), sleep(ctx, pause)); err != nil {
		return err
	}
	if err := syscall.Kill(second, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return errors.Join(s.awaitGone(ctx, stage, first), s.awaitGone(ctx, stage, second))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// serving returns the process that serves for a stage.
func (s *site) serving(ctx context.Context, stage string) (int, error) {
	pids, err := s.pids(ctx)
	if err == nil && pids[stage] == 0 {
		err = fmt.Errorf("stage %s has no process", stage)
	}
	return pids[stage], err
}

// processes are all processes of a stage.
func (s *site) processes(stage string) map[int]string {
	all := cluster.Children(s.Process().PID())
	maps.DeleteFunc(all, func(_ int, command string) bool { return command != "catena-stage-"+stage })
	return all
}

// awaitNew returns a process that did not exist before, 0 if the swap ends without one.
func (s *site) awaitNew(stage string, before map[int]string, end <-chan struct{}) int {
	for last := false; ; {
		for _, pid := range slices.Sorted(maps.Keys(s.processes(stage))) {
			if _, old := before[pid]; !old {
				return pid
			}
		}
		if last {
			return 0
		}
		select {
		case <-end:
			last = true
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// awaitGone waits until the host knows that a process has ended.
func (s *site) awaitGone(ctx context.Context, stage string, pid int) error {
	return poll(ctx, func() error {
		status, err := s.Status(ctx)
		if err != nil {
			return err
		}
		for _, st := range status.Stages {
			known := st.PID == pid || st.Standby != nil && st.Standby.PID == pid
			for _, o := range st.Others {
				known = known || o.PID == pid
			}
			if st.Stage == stage && known {
				return fmt.Errorf("process %d of stage %s was killed and is still in the status", pid, stage)
			}
		}
		return nil
	})
}

// swapTime is the duration of the latest undisturbed swap of a stage.
func (s *site) swapTime(stage string) time.Duration {
	if took, ok := s.swaps[stage]; ok {
		return took
	}
	return time.Second
}

// swap swaps a stage and remembers how long that took.
func swap(ctx context.Context, s *site, stage string) error {
	began := time.Now()
	_, err := s.Command(ctx, "swap", stage)
	s.swaps[stage] = time.Since(began)
	return err
}
