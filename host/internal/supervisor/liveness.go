package supervisor

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// probe kills a generation that has given no sign of life for the stage's liveness
// timeout: it does not answer calls, because it is suspended or deadlocked, or its
// data socket's backlog is full. What follows is a restart.
func (s *Supervisor) probe(g *generation) {
	limit := g.spec.LivenessTimeout
	for alive := time.Now(); sleep(s.background, limit/4); {
		if g.retired.Load() || g.proc.Err() != nil {
			return
		}
		err := g.probeOnce(s.background, limit/4)
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
	if _, err := g.proc.Client().Describe(ctx, &stagev1.DescribeRequest{}); err != nil {
		if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
			return err
		}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", g.listener.Path())
	if err != nil {
		return err
	}
	return c.Close()
}
