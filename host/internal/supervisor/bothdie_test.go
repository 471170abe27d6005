package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// onProbation swaps b, and returns the probation that it is on from then on.
func (f *fixture) onProbation(t *testing.T) *probation {
	t.Helper()
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Rollback: Rollback{Probation: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	return f.Supervisor.onProbation()
}

// TestBothGenerationsOfAProbationDie kills the old one while it gets its place back. What
// is published is held up, so that it is certain which is first.
func TestBothGenerationsOfAProbationDie(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	p := f.onProbation(t)
	old, next := p.moved[0].old, p.moved[0].next
	f.gate.Lock()
	kill(t, next.PID())
	<-p.over
	kill(t, old.PID())
	eventually(t, "the old process has ended", func() bool { return old.Err() != nil })
	f.gate.Unlock()
	eventually(t, "a third process serves", func() bool {
		st := f.Status()[1]
		return st.State == "serving" && st.Generation != old.ID() && st.Generation != next.ID()
	})
	f.clients(t, "/b")()
	f.settled(t)
}

// TestRollbackToADeadProcess keeps the new one.
func TestRollbackToADeadProcess(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	p := f.onProbation(t)
	old, next := p.moved[0].old, p.moved[0].next
	kill(t, old.PID())
	eventually(t, "the process has ended", func() bool { return old.Err() != nil })
	if p.rollBack(hclog.Error, "it is bad") {
		t.Error("taken back")
	}
	f.clients(t, "/b")()
	f.settled(t)
	if st := f.Status()[1]; st.Generation != next.ID() || !strings.Contains(st.LastSwap.Reason, "there is no way back") {
		t.Errorf("status %+v, last swap %+v", st, st.LastSwap)
	}
}
