package relay

import (
	"context"
	"time"
)

// maxGiveWay is how long the end of a stream is held up at most.
const maxGiveWay = 100 * time.Millisecond

// giveWay holds up the end of a response that has broken off until another process is there to take the
// place of the one that it was with. When a process ends, all its streams do, at once: to end hundreds of
// them would come before what brings up the next process, and their clients would be back before it is there.
func (x *request) giveWay(from *endpoint) {
	ctx, cancel := context.WithTimeout(x.r.Context(), x.chain.maxGiveWay)
	defer cancel()
	until := func(event <-chan struct{}) {
		select {
		case <-event:
		case <-ctx.Done():
		}
	}
	s := x.chain.present(x.snapshot)
	if i := s.index(x.stage); i < 0 || s.targets[i].endpoint != from {
		return // another has its place already
	}
	gate := from.waitsFor()
	if gate == nil { // the end of the process is not known yet
		until(s.replaced)
		gate = from.waitsFor()
	}
	if gate != nil {
		until(gate)
	}
}
