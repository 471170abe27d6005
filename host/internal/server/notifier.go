package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/systemd"
)

// phase is what a host does, as its status for systemd says it.
type phase string

const (
	starting phase = "starting"
	serving  phase = "serving"
	stopping phase = "stopping"
)

// notifier reports to systemd how the host does.
type notifier struct {
	service systemd.Service
	log     hclog.Logger
	stages  *supervisor.Supervisor
	faults  *faults.Host
	changed chan struct{} // has room for one value

	mu    sync.Mutex
	phase phase
}

func newNotifier(
	service systemd.Service, log hclog.Logger, stages *supervisor.Supervisor, wrong *faults.Host,
) *notifier {
	return &notifier{
		service: service, log: log, stages: stages, faults: wrong, changed: make(chan struct{}, 1), phase: starting,
	}
}

// follow reports when the server is ready, and from then on that it is alive.
func (n *notifier) follow(ctx context.Context, f *front.Frontend) {
	select {
	case <-f.Ready():
	case <-ctx.Done():
		return
	}
	n.become(serving, systemd.Ready)
	n.keepAlive(ctx, f.Ping)
}

// stop reports that the server ends.
func (n *notifier) stop() { n.become(stopping, systemd.Stopping) }

// handOver reports that another program goes on in this process, so that its end is not that of the service.
func (n *notifier) handOver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.phase = stopping
	n.notify(systemd.Reloading())
	if n.service.Watchdog > 0 { // no keep-alive is sent meanwhile
		n.notify(systemd.Watchdog(handOverTimeout))
	}
	n.stagesChanged()
}

// takenOver ends what handOver has begun in the program before.
func (n *notifier) takenOver() {
	if n.service.Watchdog > 0 {
		n.notify(systemd.Watchdog(n.service.Watchdog))
	}
}

// become enters a phase. None follows the last one.
func (n *notifier) become(next phase, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.phase == stopping {
		return
	}
	n.phase = next
	n.notify(message)
	n.stagesChanged()
}

func (n *notifier) current() phase {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.phase
}

// reload reports that the configuration is being applied, until done is called. A server that is not ready does not become so by that.
func (n *notifier) reload() (done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.phase != serving {
		return func() {}
	}
	n.notify(systemd.Reloading())
	return func() { n.become(serving, systemd.Ready) }
}

// stagesChanged has the status reported again. It does not wait for that.
func (n *notifier) stagesChanged() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// reportStatus reports what the stages do, whenever that changes, until over is closed.
func (n *notifier) reportStatus(over <-chan struct{}) {
	if !n.service.IsNotified() {
		return
	}
	last := ""
	for {
		select {
		case <-n.changed:
		case <-over:
			return
		}
		if line := statusLine(n.current(), n.stages.Status(), n.faults); line != last {
			n.notify(systemd.Status(line))
			last = line
		}
	}
}

// statusLine is the chain, what those of its stages do that do not serve, and what else is wrong.
func statusLine(p phase, stages []supervisor.Status, wrong *faults.Host) string {
	var names, others []string
	for _, st := range stages {
		names = append(names, st.Stage)
		if !st.State.Serves() {
			others = append(others, fmt.Sprintf("; %s is %s", st.Stage, st.State))
		}
	}
	for _, f := range wrong.List(stages, nil) {
		if f.Stage == "" {
			others = append(others, "; "+f.Text)
		}
	}
	return fmt.Sprintf("%s: %s%s", p, strings.Join(names, ", "), strings.Join(others, ""))
}

// keepAlive reports that the host is alive, twice in the time after which systemd would end it, as long as the host serves a request
// of its own and the supervisor is not stuck. A stage that hangs is no matter of systemd.
func (n *notifier) keepAlive(ctx context.Context, ping func(context.Context) error) {
	if n.service.Watchdog == 0 {
		return
	}
	interval := n.service.Watchdog / 2
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n.current() != stopping {
		pinging, cancel := context.WithTimeout(ctx, interval)
		err := ping(pinging)
		cancel()
		_ = n.stages.Status() // takes the supervisor's lock, or never returns
		switch {
		case err == nil:
			n.notify(systemd.Alive)
		case ctx.Err() == nil && n.current() != stopping:
			n.log.Warn("the host does not respond to its own request; systemd restarts it if this goes on", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n *notifier) notify(message string) {
	if err := n.service.Notify(message); err != nil {
		n.log.Warn("no message to systemd", "error", err)
	}
}
