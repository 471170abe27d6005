package relay

import "time"

// giveWay is how long the end of a stream is held up at most.
const giveWay = 100 * time.Millisecond

// giveWay holds up the end of a response that has broken off until another process is there to take the
// place of the one that it was with. When a process ends, all its streams do, at once: to end hundreds of
// them would come before what brings up the next process, and their clients would be back before it is there.
func (x *request) giveWay() {
	timeout := time.NewTimer(x.chain.giveWay)
	defer timeout.Stop()
	until := func(event <-chan struct{}) bool {
		select {
		case <-event:
			return true
		case <-timeout.C:
		case <-x.r.Context().Done():
		}
		return false
	}
	s := x.chain.state.Load()
	gate := x.gate(s)
	if gate == nil { // the end of the process is not known yet
		if !until(s.replaced) {
			return
		}
		gate = x.gate(x.chain.state.Load())
	}
	if gate != nil {
		until(gate)
	}
}

// gate is what the stage's requests wait for; nil if they do not wait.
func (x *request) gate(s *snapshot) <-chan struct{} {
	if i := s.index(x.stage); i >= 0 && s.targets[i].endpoint != nil {
		return s.targets[i].endpoint.waitsFor()
	}
	return nil
}
