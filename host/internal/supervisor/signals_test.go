package supervisor

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestStagesAreToldOfSignals shows that every process is told of every signal, also one
// that comes later, and before the server is gone.
func TestStagesAreToldOfSignals(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	seen := func(event string) int {
		n := 0
		for _, e := range f.events(t) {
			if e == event {
				n++
			}
		}
		return n
	}
	f.Notify("MuxAndDiscoveryComplete", time.Now())
	f.Notify("HasBeenReady", time.Now())
	eventually(t, "all know that the server has been ready", func() bool {
		return seen("HasBeenReady a") == 1 && seen("HasBeenReady b") == 1 && seen("HasBeenReady c") == 1
	})
	if err := syscall.Kill(f.pid("b"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next process of b knows it too", func() bool { return seen("HasBeenReady b") == 2 })
	if seen("ShutdownInitiated a") != 0 {
		t.Error("a signal that has not come")
	}
	f.Notify("ShutdownInitiated", time.Now())
	took := make(chan time.Duration, 1)
	go func() {
		began := time.Now()
		for told, changed := f.signals.allNotified(); !told; told, changed = f.signals.allNotified() {
			<-changed // it ends with the stages, too
		}
		took <- time.Since(began)
	}()
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	if d := <-took; d >= lastNotice {
		t.Skipf("the machine has taken %s to tell three stages, Stop waits %s for that", d, lastNotice)
	}
	for _, want := range []string{"ShutdownInitiated a", "ShutdownInitiated b", "ShutdownInitiated c"} {
		if !slices.Contains(f.events(t), want) {
			t.Errorf("no %q in %q", want, f.events(t))
		}
	}
}

// TestHooksKnowTheSignals shows that a process which takes the place of another knows all that has come before a hook of it runs, however many
// signals that is.
func TestHooksKnowTheSignals(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	for range 500 {
		f.Notify("MuxAndDiscoveryComplete", time.Now())
	}
	f.Notify("HasBeenReady", time.Now())
	knowing := func() (n int) {
		for _, e := range f.events(t) {
			if e == "post-start knows b" {
				n++
			}
		}
		return n
	}
	if _, err := f.Swap(t.Context(), "b", SwapOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := knowing(); n != 1 {
		t.Errorf("after a swap %d hooks know that the server has been ready", n)
	}
	old := f.pid("b")
	kill(t, old)
	eventually(t, "the hook of the next process knows it", func() bool { return f.pid("b") != old && knowing() == 2 })
}
