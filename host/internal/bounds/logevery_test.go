package bounds

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Each subject has a line at once and then one in each pause, and what is remembered does not grow with the subjects.
func TestLogEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l LogEvery
		due := func(what string, want bool) {
			t.Helper()
			if got := l.Due(what); got != want {
				t.Errorf("%s: %t", what, got)
			}
		}
		due("a", true)
		due("a", false)
		due("b", true)
		time.Sleep(LogPause - 1)
		due("a", false)
		time.Sleep(time.Nanosecond)
		due("a", true)
		for i := range logSubjects - 1 {
			due(strconv.Itoa(i), true)
		}
		due("one too many", false)
		time.Sleep(LogPause)
		due("one too many", true)
		if n := len(l.last); n != 1 {
			t.Errorf("%d are remembered", n)
		}
	})
}
