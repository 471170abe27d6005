package supervisor

import (
	"slices"
	"testing"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// TestTrialEnds shows that the end of a process that was only looked at is not told as a failure.
func TestTrialEnds(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	trial, err := f.Try(t.Context(), "b", func(*Spec) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	id := trial.generation.ID()
	trial.Close()
	<-trial.Done()
	var states []string
	eventually(t, "its end is told", func() bool {
		f.Supervisor.events.flush()
		f.mu.Lock()
		defer f.mu.Unlock()
		states = nil
		for _, e := range f.happened {
			if e.Kind == StateChanged && e.Generation == id {
				states = append(states, e.To)
			}
		}
		return slices.Contains(states, lifecycle.Stopped.String()) || slices.Contains(states, lifecycle.Failed.String())
	})
	if slices.Contains(states, lifecycle.Failed.String()) {
		t.Errorf("the process of a trial had the states %q", states)
	}
	if st := f.Status()[1]; st.Failure != "" || st.Failures != 0 || len(st.Others) != 0 {
		t.Errorf("after the trial: %+v", st)
	}
}
