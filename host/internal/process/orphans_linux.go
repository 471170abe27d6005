package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/usage"
)

// orphanPause is the time between two looks at children that have ended. The function that has started a child waits
// for it at once.
const orphanPause = 5 * time.Second

// AdoptOrphans makes this process the parent of all that its children leave behind, and reaps that until ctx ends. So no
// process of a stage can pass for one that an operator has started: it descends from this process.
func AdoptOrphans(ctx context.Context) error {
	if err := adopt(); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		defer signal.Stop(ended)
		reapOrphans(ctx, ended)
	}()
	return nil
}

func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt the processes that stages leave behind: %w", err)
	}
	return nil
}

// EndOrphans kills what isolated processes have left behind. It is for the end of this process, when no stage is to run any more: it
// kills each child that has more filters of its system calls than this process, as all that an isolated process has started.
func EndOrphans() error {
	own, err := guard.OwnFilters()
	if err != nil {
		return err
	}
	for range maxGenerations {
		children, err := usage.Children(os.Getpid())
		if err != nil {
			return err
		}
		killed := 0
		for _, pid := range children {
			if filters, err := (guard.Peer{PID: pid}).Filters(); err != nil || filters <= own || unix.Kill(pid, unix.SIGKILL) != nil {
				continue
			}
			killed++
			_, _ = unix.Wait4(pid, nil, 0, nil) // its children are this process' then
		}
		if killed == 0 {
			return nil
		}
	}
	return errors.New("processes that stages have left behind start others faster than they are killed")
}

// maxGenerations bounds how often EndOrphans looks for children of what it has killed.
const maxGenerations = 1000

// WithoutOrphans calls a function that starts isolated processes, and ends what these leave behind. It is for commands.
func WithoutOrphans(run func() int) int {
	if err := adopt(); err != nil {
		return run() // what is left is not this process' to end
	}
	defer func() { _ = EndOrphans() }()
	return run()
}

// reapOrphans reaps children that were found twice: nothing else waits for them.
func reapOrphans(ctx context.Context, ended <-chan os.Signal) {
	var seen []int
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			if again == nil {
				again = time.After(orphanPause)
			}
			continue
		case <-again:
			again = nil
		}
		zombies, err := usage.Zombies(os.Getpid())
		if err != nil {
			zombies = nil // the next end of a process is another occasion
		}
		for _, pid := range zombies {
			if slices.Contains(seen, pid) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
		if seen = zombies; len(seen) > 0 {
			again = time.After(orphanPause)
		}
	}
}
