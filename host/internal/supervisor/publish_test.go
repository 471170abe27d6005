package supervisor

import (
	"testing"
	"time"
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
	step(0, 0, true)                             // at once
	step(publishPause/4, publishPause*3/4, true) // later
	step(publishPause/4, 0, false)               // which does for this, too
	now = now.Add(publishPause / 2)
	p.fire(now)
	step(publishPause/2, publishPause/2, true)
	now = now.Add(publishPause / 2)
	p.fire(now)
	step(time.Hour, 0, true)
	step(time.Hour, 0, true)
}
