package store

import (
	"testing"
	"time"
)

func TestRevisions(t *testing.T) {
	t.Parallel()
	var r Revisions
	if got := r.Past(); got != 0 {
		t.Errorf("without a sample: %d", got)
	}
	now := time.Now()
	pass := func(d time.Duration, revision, want int64) {
		t.Helper()
		now = now.Add(d)
		r.note(now, revision)
		if got := r.Past(); got != want {
			t.Errorf("at revision %d: %d, want %d", revision, got, want)
		}
	}
	pass(0, 100, 100)
	pass(time.Second, 200, 100)
	for revision := int64(300); revision <= 1200; revision += 100 {
		pass(historySample, revision, 100) // up to 151 s after the first
	}
	pass(historySample, 1300, 300) // 165 s after the first, 149 s after 400
	pass(historySample, 1400, 400)
	if n := len(r.samples); n > 12 {
		t.Errorf("%d samples", n)
	}
	pass(historyAge+time.Second, 1500, 1400)
	pass(time.Hour, 1600, 1500)                      // nobody asked for an hour: that is the latest that is old enough
	pass(historySample, 90_000, 40_000)              // too many changes
	pass(historySample, 50, 50)                      // a backup
	pass(10*time.Second, 40, 40)                     // another one
	pass(historySample-time.Nanosecond, 70, 40)      // no sample
	pass(time.Nanosecond, 80, 40)                    // one
	pass(historyAge-historySample, 90, 40)           // and the first is old enough now
	pass(historySample-time.Nanosecond, 100_000, 40) // known at the next sample
}
