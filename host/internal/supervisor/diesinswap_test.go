package supervisor

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process/processtest"
)

// TestProcessThatDiesDuringAChangeThatHangs is restarted at once: what it served does not
// wait for the change, whether that is given up or goes on in the end.
func TestProcessThatDiesDuringAChangeThatHangs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// change makes the new generation hang until the file is removed, or for ever.
		change func(s *Spec, file string)
		apply  bool
		works  bool
	}{
		"swap that launches":     {change: hangs},
		"reload that launches":   {change: hangs, apply: true},
		"swap that gets ready":   {change: sickWith, works: true},
		"reload that gets ready": {change: sickWith, apply: true, works: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, nil)
			file := filepath.Join(t.TempDir(), "file")
			if err := processtest.WriteProgram(file, []byte("#!/bin/sh\nexec sleep 1000\n")); err != nil {
				t.Fatal(err)
			}
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			done := make(chan error, 1)
			go func() {
				var err error
				if tc.apply {
					specs := f.Specs()
					tc.change(&specs[1], file)
					_, err = f.Apply(ctx, specs)
				} else {
					_, err = f.Swap(ctx, "b", SwapOptions{Change: changing(func(s *Spec) { tc.change(s, file) })})
				}
				done <- err
			}()
			eventually(t, "the change has begun", func() bool { return len(f.kinds(SwapBegun)) == 1 })
			dead := f.pid("b")
			kill(t, dead)
			if status, body := f.ask("POST", "/b", ""); status != http.StatusOK || strings.HasPrefix(body, fmt.Sprint(dead, " ")) {
				t.Errorf("while the change is under way: %d %s", status, body)
			}
			eventually(t, "the restart is told", func() bool { return len(f.kinds(Restarted)) == 1 })
			if len(done) > 0 {
				t.Errorf("the change is over: %q", f.kinds(SwapDone, SwapFailed))
			}
			restarted := f.pid("b")
			stop := f.clients(t, "/b")
			if tc.works {
				removeFile(t, file)
			} else {
				giveUp()
			}
			if err := <-done; (err == nil) != tc.works {
				t.Error(err)
			}
			f.settled(t)
			stop()
			if (f.pid("b") == restarted) == tc.works {
				t.Errorf("process %d serves, %d was restarted", f.pid("b"), restarted)
			}
		})
	}
}

// lose makes the binary of a stage one that is not there, and returns the path of the one
// that it was.
func (f *fixture) lose(name string) string {
	return f.use(name, "/nonexistent")
}

// use makes the binary of a stage the one at the path, and returns the path before.
func (f *fixture) use(name, path string) (before string) {
	held := f.lock()
	defer held.unlock()
	st, err := held.stage(name)
	if err != nil {
		panic(err)
	}
	before, st.guarded.spec.Binary = st.guarded.spec.Binary, path
	return before
}

func hangs(s *Spec, file string)    { s.Binary = file }
func sickWith(s *Spec, file string) { s.Config = map[string]any{"log": s.Config["log"], "sick": file} }

func (f *fixture) state(st *stage, g *generation.Generation) lifecycle.State {
	held := f.lock()
	defer held.unlock()
	return st.guarded.machine.State(g.ID())
}

// TestRestartThatAChangeOvertakes finishes what the process has taken already.
func TestRestartThatAChangeOvertakes(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) { o.HoldTimeout = patience })
	st, file := f.order()[1], filepath.Join(t.TempDir(), "file")
	dead := f.current("b")
	held := f.lock()
	st.guarded.machine.Retire(dead.ID()) // nothing else restarts it
	held.unlock()
	suspend(t, dead.PID())
	answer := make(chan string, 1)
	go func() {
		status, body := f.ask("POST", "/b?slow="+file, "")
		answer <- fmt.Sprint(status, " ", body)
	}()
	eventually(t, "a request is under way", func() bool { return f.relay.Loads()[1].InFlight == 1 })
	kill(t, dead.PID())
	eventually(t, "its end is seen", func() bool { return f.state(st, dead) == lifecycle.Stopped })
	g, err := st.replacement(dead)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has the request", func() bool { return slices.Contains(f.events(t), "slow b") })
	if _, err := f.Swap(t.Context(), "b", SwapOptions{}); err != nil {
		t.Fatal(err)
	}
	f.running.Go(func() { st.live(g).retire(overtakenByChange) })
	eventually(t, "it ends", func() bool { return f.state(st, g) == lifecycle.Draining })
	touch(t, file)
	if got, want := <-answer, fmt.Sprint("200 ", g.PID(), " "); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	eventually(t, "it has ended", func() bool { return g.Err() != nil })
}
