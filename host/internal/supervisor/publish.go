package supervisor

import "time"

// publishPause is the time between two publications because of what stages report. A
// stage can change its claims as often as it likes.
const publishPause = 20 * time.Millisecond

// pace keeps the time of the latest publication.
type pace struct {
	due  bool
	last time.Time
}

// wait returns how long to wait before the next publication. If one is due already, it
// does for this, too, and ok is false.
func (p *pace) wait(now time.Time) (wait time.Duration, ok bool) {
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
func (p *pace) fire(now time.Time) { p.due, p.last = false, now }

// publishSoon publishes what a stage has reported: at once if the latest time is long
// enough ago, else a moment later, together with what comes meanwhile.
func (s *Supervisor) publishSoon() {
	s.lock()
	defer s.unlock()
	wait, ok := s.pace.wait(time.Now())
	switch {
	case !ok:
	case wait <= 0:
		s.publish()
	default:
		time.AfterFunc(wait, func() {
			s.lock()
			defer s.unlock()
			s.pace.fire(time.Now())
			if !s.stopping {
				s.publish()
			}
		})
	}
}
