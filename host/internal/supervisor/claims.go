package supervisor

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// maxClaims bounds the claims of one stage: the table that all requests go by is made
// from them.
const maxClaims = 100_000

// accept returns those claims that can hold. What is wrong with the others is logged when
// it is new.
func (g *generation) accept(claims []*stagev1.Claim) []*stagev1.Claim {
	good := make([]*stagev1.Claim, 0, min(len(claims), maxClaims))
	var wrong []string
	for _, c := range claims {
		err := chain.Claim{Path: c.GetPath(), Match: chain.Match(c.GetMatch())}.Validate()
		if err == nil && len(good) == maxClaims {
			wrong = append(wrong, fmt.Sprintf("%d claims are more than a stage can have, which is %d", len(claims), maxClaims))
			break
		}
		if err == nil {
			good = append(good, c)
		} else if len(wrong) < 10 {
			wrong = append(wrong, err.Error())
		}
	}
	if complaint := strings.Join(wrong, "; "); complaint != g.complaint {
		if g.complaint = complaint; complaint != "" {
			g.stage.log.Warn("the stage makes claims that do not count", "generation", g.id, "claims", complaint)
		}
	}
	return good
}

// publishPause is the time between two publications because of what stages report. A
// stage can change its claims as often as it likes.
const publishPause = 20 * time.Millisecond

// pacer keeps the time of the latest publication.
type pacer struct {
	mu   sync.Mutex
	due  bool
	last time.Time
}

// wait returns how long to wait before the next publication. If one is due already, it
// does for this, too, and ok is false.
func (p *pacer) wait(now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due {
		return 0, false
	}
	wait = publishPause - now.Sub(p.last)
	p.due = wait > 0
	if !p.due {
		p.last = now
	}
	return wait, true
}

// fire says that a publication that was due is made now.
func (p *pacer) fire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due, p.last = false, now
}

// publishSoon publishes what a stage has reported: at once if the latest time is long
// enough ago, else a moment later, together with what comes meanwhile.
func (s *Supervisor) publishSoon() {
	wait, ok := s.pace.wait(time.Now())
	switch {
	case !ok:
	case wait <= 0:
		s.publish()
	default:
		time.AfterFunc(wait, func() {
			s.pace.fire(time.Now())
			if s.begin() {
				defer s.running.Done()
				s.publish()
			}
		})
	}
}
