package supervisor

import (
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// pace spaces the publications because of what stages report. A stage can change its claims as often as it likes.
type pace struct {
	due  bool
	next time.Time
}

// wait returns how long to wait before the next publication. If one is due already, it
// does for this, too, and ok is false.
func (p *pace) wait(now time.Time) (wait time.Duration, ok bool) {
	if p.due {
		return 0, false
	}
	wait = p.next.Sub(now)
	p.due = wait > 0
	return wait, true
}

// published takes note of a publication, for which the lock was held that long: others need it too.
func (p *pace) published(now time.Time, took time.Duration) {
	p.due, p.next = false, now.Add(max(bounds.PublishPause, (bounds.EventShare-1)*took))
}

// publishSoon publishes what a stage has reported: at once if the latest time is long
// enough ago, else a moment later, together with what comes meanwhile.
func (s *Supervisor) publishSoon() {
	held := s.lock()
	defer held.unlock()
	wait, ok := held.pace.wait(time.Now())
	switch {
	case !ok:
	case wait <= 0:
		held.publishReported()
	default:
		time.AfterFunc(wait, func() {
			held := s.lock()
			defer held.unlock()
			held.publishReported()
		})
	}
}
