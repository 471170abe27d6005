package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// canaries are events in which both processes of a stage serve for a while.
func canaries() []event {
	return []event{
		{"canary", planned, inChain, canary},
		{"killed in canary", crashInSwap, inChain, killedInCanary},
	}
}

// canary sends a share of the clients to a new process, which stays in the end, at once or step by step, or gives way.
func canary(ctx context.Context, s *site, stage string) error {
	share, end := 5+s.random.IntN(90), s.random.IntN(3)
	pause := time.Duration(s.random.IntN(1000)) * time.Millisecond
	if err := s.begin(ctx, stage, share, "500ms"); err != nil {
		return err
	}
	conclusion := [...]string{"", "--promote", "--rollback"}[end]
	if conclusion != "" {
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		// It may be over by now: it takes a second.
		if _, err := s.Command(ctx, "swap", stage, conclusion); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return s.awaitOne(ctx, stage)
}

// killedInCanary kills one of the two processes: the other has all clients then.
func killedInCanary(ctx context.Context, s *site, stage string) error {
	killOld := s.random.IntN(2) == 0
	pause := time.Duration(s.random.IntN(500)) * time.Millisecond
	victim, err := s.serving(ctx, stage)
	if err == nil {
		err = s.begin(ctx, stage, 50, "5m")
	}
	if err == nil && !killOld {
		victim, err = s.serving(ctx, stage)
	}
	if err == nil {
		err = sleep(ctx, pause)
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return err
	}
	return errors.Join(s.awaitGone(ctx, stage, victim), s.awaitOne(ctx, stage))
}

func (s *site) begin(ctx context.Context, stage string, share int, each string) error {
	_, err := s.Command(ctx, "swap", stage, "--canary", fmt.Sprint(share, "%"), "--for", each, "--rollback-on", "health")
	return err
}

// awaitOne waits until no canary of a stage is under way. It promotes one that waits for clients.
func (s *site) awaitOne(ctx context.Context, stage string) error {
	return poll(ctx, func() error {
		status, err := s.Status(ctx)
		if err != nil {
			return err
		}
		for _, st := range status.Stages {
			if st.Stage == stage && st.Probation != nil {
				if c := st.Probation.Canary; c != nil && c.Waits { // none of the few clients is on the new side
					_, _ = s.Command(ctx, "swap", stage, "--promote") // or it has ended since
				}
				return fmt.Errorf("the canary of stage %s goes on", stage)
			}
		}
		return nil
	})
}
