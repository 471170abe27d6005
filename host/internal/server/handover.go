package server

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/handover"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/systemd"
)

const (
	// takeOverTimeout is how long a program that has taken over may take to be ready. Then it hands back.
	takeOverTimeout = 2 * time.Minute
	// handOverTimeout is how long it may take until there is a server again, the way back included.
	handOverTimeout = 3 * takeOverTimeout
)

var errNotReady = fmt.Errorf("the server was not ready %s after it had taken over", takeOverTimeout)

// upgrader has another program take the place of this one, in the same process.
type upgrader struct {
	inherited *handover.Inherited
	service   systemd.Service
	version   string
	log       hclog.Logger
	front     *front.Frontend
	stages    *supervisor.Supervisor
	chain     *chainState
	journal   *journal
	// end ends the run: with a *handover.Handover, another program goes on.
	end context.CancelCauseFunc
}

// upgrade ends the run so that another program goes on in this process. An error leaves all as it is.
func (u *upgrader) upgrade(ctx context.Context, req admin.HostUpgradeRequest) error {
	if !u.chain.serving.Load() || !u.front.WasReady() {
		return admin.ErrStarting
	}
	end, err := u.stages.Begin(ctx, supervisor.UpgradeHost, "")
	if err != nil {
		return err
	}
	h, err := u.inherited.Prepare(ctx, handover.Request{
		Binary: req.Binary, Allow: req.Allow, By: admin.CallerOf(ctx), Version: u.version,
		Kubernetes: u.front.Version(), Environment: u.service.Environ(os.Environ()),
	}, u.front.ListenerFile)
	if err != nil {
		end()
		return err
	}
	u.log.Info("the host hands over to another program", "binary", h.Program, "by", h.By)
	u.journal.notifier.handOver()
	u.front.HandOver()
	u.end(h)
	return nil
}

// takeOver gives a server that has taken the place of another one time to be ready, and records how it went.
func (u *upgrader) takeOver(ctx context.Context) {
	i := u.inherited
	if !i.TakesOver() {
		return
	}
	select {
	case <-u.front.Ready():
	case <-time.After(takeOverTimeout):
		u.front.Fail(errNotReady)
		return
	case <-ctx.Done():
		return
	}
	i.Settle()
	u.journal.notifier.takenOver()
	took := time.Since(i.At)
	u.journal.history.change(admin.Change{
		At: i.At, By: i.By, What: i.What, TookSeconds: took.Seconds(), Error: i.Problem,
	})
	if i.Problem != "" {
		u.log.Error("the other program has failed: this one has its place back", "error", i.Problem, "took",
			took.Round(time.Millisecond))
		return
	}
	u.log.Info("took over from another program", "from", i.From, "by", i.By, "took", took.Round(time.Millisecond))
}
