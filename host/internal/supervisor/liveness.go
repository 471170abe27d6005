package supervisor

import (
	"context"
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
// timeout: it does not answer calls, because it is suspended or deadlocked, or its
// data socket's backlog is full. What follows is a restart.
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
	return c.Close()
}

// answers returns an error if the process does not answer calls before ctx ends.
func (g *generation) answers(ctx context.Context) error {
	_, err := g.proc.Client().Describe(ctx, &stagev1.DescribeRequest{})
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
		return err
	}
	return nil
}
