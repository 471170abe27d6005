package supervisor

import (
	"context"
	"sync"
	"time"
)

// Kill ends all processes at the same time, those that have not stopped by themselves
// after the given time by force. It is for a server that is not to end in order; Stop is
// due nevertheless.
func (s *Supervisor) Kill(after time.Duration) {
	s.setStopping()
	s.cancel()
	var wg sync.WaitGroup
	for _, g := range s.everyone() {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), after)
			defer cancel()
			g.stop(ctx, "the server ends by force")
		})
	}
	wg.Wait()
}
