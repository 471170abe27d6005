package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/usage"
)

// orphanPause is the time between two looks at children that have ended. Whoever has started a child waits for it at once.
const orphanPause = 5 * time.Second

// AdoptOrphans makes this process the parent of all that its children leave behind, and reaps that until ctx ends. So no
// process of a stage can pass for one that an operator has started: it descends from this process.
func AdoptOrphans(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt the processes that stages leave behind: %w", err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		defer signal.Stop(ended)
		reapOrphans(ctx, ended)
	}()
	return nil
}

// reapOrphans reaps children that were found twice: nobody else waits for them.
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
