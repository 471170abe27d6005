package apiserver

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	// idleShare is the share of one processor up to which a system is idle. Each of the two uses 2 to
	// 6 % when nothing is asked of it: etcd's ticks, informers, leases, health checks.
	idleShare = 0.1
	// idleTime is how long each of them has to be.
	idleTime = 5 * time.Second
	// idleTimeout is when to give up.
	idleTimeout = 3 * time.Minute
)

// AwaitIdle waits until none of the servers has used more than 10 % of a processor for five seconds. The error
// of a server that does not become idle says how much it uses.
func AwaitIdle(ctx context.Context, servers ...*Server) error {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	var history [][]time.Duration // of each second, by server
	for {
		var now []time.Duration
		for _, s := range servers {
			now = append(now, s.CPU())
		}
		history = append(history, now)
		seconds := int(idleTime / time.Second)
		var busy []string
		if n := len(history) - 1 - seconds; n >= 0 {
			for i, s := range servers {
				if share := (now[i] - history[n][i]).Seconds() / idleTime.Seconds(); share > idleShare {
					busy = append(busy, fmt.Sprintf("%s uses %.1f %% of a processor", s.Name, 100*share))
				}
			}
			if len(busy) == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until idle: %w: %s", ctx.Err(), strings.Join(busy, ", "))
		case <-time.After(time.Second):
		}
	}
}
