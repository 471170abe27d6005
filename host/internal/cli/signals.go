package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/catena-dev/catena/host/internal/server"
)

// shutdownContext ends with the first SIGINT or SIGTERM, and force is closed with the
// second. The third ends the process at once; the stages notice that and end too.
func shutdownContext(parent context.Context) (ctx context.Context, force <-chan struct{}, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	forced := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(server.Stopped{Signal: s})
		case <-ctx.Done():
		}
		<-signals
		close(forced)
		<-signals
		os.Exit(130)
	}()
	return ctx, forced, func() { cancel(nil) }
}

// hangups gets each SIGHUP until stop is called.
func hangups() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
