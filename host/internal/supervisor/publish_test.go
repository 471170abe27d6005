package supervisor

import (
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
)

func TestPace(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Now()
	step := func(after time.Duration, wantWait time.Duration, wantOK bool) {
		t.Helper()
		now = now.Add(after)
		if wait, ok := p.wait(now); ok != wantOK || ok && max(wait, 0) != wantWait {
			t.Errorf("wait %s, %t; want %s, %t", wait, ok, wantWait, wantOK)
		}
	}
	published := func(after, took time.Duration) {
		now = now.Add(after)
		p.published(now, took)
	}
	const pause = bounds.PublishPause
	step(0, 0, true) // at once
	published(0, 0)
	step(pause/4, pause*3/4, true) // later
	step(pause/4, 0, false)        // which does for this, too
	published(pause/2, 0)
	step(pause/2, pause/2, true)
	published(pause/2, time.Second)
	step(pause, (bounds.EventShare-1)*time.Second-pause, true) // it was slow
	published(time.Hour, 0)
	step(time.Hour, 0, true)
	step(time.Hour, 0, true)
}
