package supervisor

import (
	"errors"
	"testing"
)

// TestRestartsAreThoseThatCameUp does not count attempts.
func TestRestartsAreThoseThatCameUp(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	self, st := f.lose("b"), f.order()[1]
	kill(t, f.pid("b"))
	eventually(t, "three attempts have been made", func() bool {
		held := f.lock()
		defer held.unlock()
		return st.guarded.failures > 3
	})
	if n := f.Status()[1].Restarts; n != 0 {
		t.Errorf("%d restarts of a stage whose binary is missing", n)
	}
	f.use("b", self)
	eventually(t, "b is back", func() bool { return f.Status()[1].State == "serving" })
	if n := f.Status()[1].Restarts; n != 1 {
		t.Errorf("%d restarts", n)
	}
}

// TestSwapForgetsFailures: a process that an operator has put there is not restarted late because of those before it.
func TestSwapForgetsFailures(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	st := f.order()[1]
	held := f.lock()
	st.guarded.failures = 8
	held.unlock()
	if _, err := f.Swap(t.Context(), "b", SwapOptions{}); err != nil {
		t.Fatal(err)
	}
	held = f.lock()
	defer held.unlock()
	if st.guarded.failures != 0 {
		t.Errorf("%d failures in a row count after the swap", st.guarded.failures)
	}
}

// TestRefusedSwap is told of, unless it could be had a moment later.
func TestRefusedSwap(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	f.swapRefused("b", ErrBusy)
	f.swapRefused("nobody", errors.New("it is none"))
	if st := f.Status()[1]; st.LastSwap != nil || len(f.kinds(SwapFailed)) != 0 {
		t.Errorf("last swap %+v", st.LastSwap)
	}
	f.swapRefused("b", errors.New("it is no program"))
	if st := f.Status()[1]; st.LastSwap == nil || st.LastSwap.Result != "failed" || st.LastSwap.Reason != "it is no program" || len(f.kinds(SwapFailed)) != 1 {
		t.Errorf("last swap %+v", st.LastSwap)
	}
}

// TestSwapOfAnAttachedProcess is refused before anything has begun, which is told of too.
func TestSwapOfAnAttachedProcess(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	held := f.lock()
	held.chain[1].guarded.spec.Attach = "/nowhere" // as if it were one
	held.unlock()
	if _, err := f.Swap(t.Context(), "b", SwapOptions{}); !errors.Is(err, errAttached) {
		t.Errorf("got %v", err)
	}
	if last := f.Status()[1].LastSwap; last == nil || last.Result != "failed" || last.From != f.Status()[1].Generation {
		t.Errorf("last swap %+v", last)
	}
}
