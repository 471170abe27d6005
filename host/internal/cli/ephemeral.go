package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/catena-dev/catena/host/internal/config"
)

// parentPause is how often an ephemeral server looks whether its parent is there.
const parentPause = 200 * time.Millisecond

var errParentEnded = errors.New("the process that has started the server has ended")

// makeEphemeral gives a server a directory that is its own, and a free port of this machine alone unless given reports
// that a flag says otherwise. It returns what is due in the end.
func (f *configFlags) makeEphemeral(given func(flag string) bool) (remove func() error, err error) {
	if f.dataDir != "" {
		return nil, errors.New("--ephemeral is with a data directory of its own: leave out --data-dir")
	}
	if f.dataDir, err = os.MkdirTemp("", "catena-ephemeral-"); err != nil {
		return nil, fmt.Errorf("directory of the server: %w", err)
	}
	for name, value := range map[string]string{"secure-port": "0", "bind-address": "127.0.0.1"} {
		if !given(name) {
			f.more = append(f.more, config.CommandFlag{Name: "--ephemeral", Key: "apiserver." + name, Value: value})
		}
	}
	return func() error { return os.RemoveAll(f.dataDir) }, nil
}

// withParent returns a context that ends when the parent of this process does, which then has another. A process that
// init has started has none.
func withParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if parent := os.Getppid(); parent > 1 {
		// Who reads the log may have gone, too: a line of it is not to end this process, as it does by default.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		go func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(parentPause):
				}
				if os.Getppid() != parent {
					cancel(errParentEnded)
				}
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}
