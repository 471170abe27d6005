package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// unprobed is how often the supervisor looks whether a stage that may be silent for ever
// still may.
const unprobed = time.Second

// interval is the time between two probes of a stage, and limit that after which a
// silent process is killed; 0 is never.
func (s *stage) interval() (interval, limit time.Duration) {
	limit = s.present().LivenessTimeout
	if limit <= 0 {
		return unprobed, 0
	}
	return limit / 4, limit
}

// probe kills a generation that has given no sign of life for the stage's liveness
// timeout: it does not answer calls, because it is suspended or deadlocked, one of its
// checks of /livez has not come back for so long, or its data socket's backlog is full.
// What follows is a restart. A check that fails is no such sign: what the stage needs may
// be away, as etcd, and a restart would not bring it back.
func (s *Supervisor) probe(g *generation) {
	for alive := time.Now(); ; {
		interval, limit := g.stage.interval()
		if !sleep(s.background, interval) || g.retired.Load() || g.proc.Err() != nil {
			return
		}
		if limit == 0 {
			alive = time.Now()
			continue
		}
		err := g.probeOnce(s.background, interval)
		if err == nil {
			alive = time.Now()
			continue
		}
		if stuck := (*stuckCheck)(nil); errors.As(err, &stuck) && stuck.since.Before(alive) {
			alive = stuck.since
		}
		if silent := time.Since(alive); silent >= limit && !s.isStopping() && !g.retired.Load() {
			g.stage.log.Error("stage gives no sign of life, killing it", "generation", g.id,
				"silent", silent.Round(time.Millisecond), "error", err)
			s.kill(g)
			return
		}
	}
}

func (g *generation) probeOnce(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := g.answers(ctx); err != nil {
		return err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", g.listener.Path())
	if err != nil {
		return err
	}
	_ = c.Close()
	return g.unstuck(ctx)
}

// stuckCheck is a health check that has not come back since then.
type stuckCheck struct {
	name  string
	since time.Time
}

func (c *stuckCheck) Error() string {
	return fmt.Sprintf("health check %q has not come back for %s", c.name, time.Since(c.since).Round(time.Millisecond))
}

// unstuck returns an error if a check of /livez has been running for longer than any
// caller gives it.
func (g *generation) unstuck(ctx context.Context) error {
	var names []string
	for _, c := range g.prepared.GetHealthChecks() {
		if c.GetLivez() {
			names = append(names, c.GetName())
		}
	}
	if len(names) == 0 {
		return nil
	}
	resp, err := g.proc.Client().CheckHealth(ctx, &stagev1.CheckHealthRequest{Names: names})
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
		return err
	}
	for _, r := range resp.GetResults() {
		if running := r.GetRunning().AsDuration(); running > checkTimeout {
			return &stuckCheck{r.GetName(), time.Now().Add(-running)}
		}
	}
	return nil
}

// answers returns an error if the process does not answer calls before ctx ends.
func (g *generation) answers(ctx context.Context) error {
	_, err := g.proc.Client().Describe(ctx, &stagev1.DescribeRequest{})
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
		return err
	}
	return nil
}
