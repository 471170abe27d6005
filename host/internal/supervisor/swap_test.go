package supervisor

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// TestSwapThatListsOtherPathsSwapsUpstream swaps the stages upstream of one that lists
// other paths than before, together with it.
func TestSwapThatListsOtherPathsSwapsUpstream(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	c := f.pid("c")
	stop := f.clients(t, "/a", "/b", "/c")
	swapped, err := f.Swap(t.Context(), "b", SwapOptions{Change: changing(func(s *Spec) {
		s.Config = map[string]any{"log": f.log, "paths": []string{"/more"}}
	})})
	if err != nil || !slices.Equal(swapped.Also, []string{"a"}) {
		t.Fatalf("%+v, %v", swapped, err)
	}
	if status, body := f.ask("GET", "/a", ""); status != http.StatusOK || !strings.HasSuffix(body, "[b[/b /more] c[/c]]") && !strings.HasSuffix(body, "[b[/more /b] c[/c]]") {
		t.Errorf("a: %d %s", status, body)
	}
	if status, body := f.ask("GET", "/more", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	stop()
	f.settled(t)
	if f.pid("c") != c {
		t.Error("a stage downstream was swapped")
	}
}

// TestSwapTakesAStageAlong swaps a stage that another goes along with: both move, and go back, at one point in time. If
// the other does not come up, nothing has changed.
func TestSwapTakesAStageAlong(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	a, b, c := f.pid("a"), f.pid("b"), f.pid("c")
	along := func(change func(*Spec)) Along {
		return func(swapped Spec, next *stagev1.DescribeResponse, other *Spec) (string, error) {
			if swapped.Name != "b" || next.GetVersion() == "" {
				t.Errorf("%s goes with %s %v", other.Name, swapped.Name, next)
			}
			if other.Name != "c" {
				return "", nil
			}
			change(other)
			return "it goes along", nil
		}
	}
	for what, change := range map[string]func(*Spec){
		"is not there":             func(s *Spec) { s.Binary = filepath.Join(t.TempDir(), "none") },
		"refuses its own settings": func(s *Spec) { s.Config = map[string]any{"nonsense": true} },
	} {
		_, err := f.Swap(t.Context(), "b", SwapOptions{Along: along(change)})
		if err == nil || !strings.Contains(err.Error(), `stage "c"`) {
			t.Errorf("one that %s: %v", what, err)
		}
	}
	if f.pid("a") != a || f.pid("b") != b || f.pid("c") != c {
		t.Error("something has changed")
	}
	config := map[string]any{"log": f.log, "paths": []string{"/c", "/more"}}
	swapped, err := f.Swap(t.Context(), "b", SwapOptions{
		Rollback: Rollback{Health: true, Probation: time.Hour}, Along: along(func(s *Spec) { s.Config = config }),
	})
	if err != nil || !slices.Equal(swapped.Also, []string{"a", "c"}) {
		t.Fatalf("%+v, %v", swapped, err)
	}
	if status, body := f.ask("GET", "/more", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if err := f.Conclude("b", false); err != nil {
		t.Fatal(err)
	}
	if f.pid("a") != a || f.pid("b") != b || f.pid("c") != c || f.Specs()[2].Config["paths"] != nil {
		t.Error("not all have gone back")
	}
}

// TestNewStagesCanCallEachOtherBeforeTheyServe adds two stages, of which the one is not
// ready before it has reached the other.
func TestNewStagesCanCallEachOtherBeforeTheyServe(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	specs := f.Specs()
	d, e := like(specs[0], "d"), like(specs[0], "e")
	d.Config = map[string]any{"log": f.log, "ask": "e"}
	if _, err := f.Apply(t.Context(), append(specs, d, e)); err != nil {
		t.Fatal(err)
	}
	if status, body := f.ask("GET", "/d", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// TestNewStageCanCallItselfBeforeItServes adds a stage that is not ready before it has
// reached itself through the API of the server, as a core does that creates what it needs.
// Others do not reach it by then.
func TestNewStageCanCallItselfBeforeItServes(t *testing.T) {
	t.Parallel()
	sick := filepath.Join(t.TempDir(), "sick")
	touch(t, sick)
	f := ready(t, nil)
	specs := f.Specs()
	d := like(specs[0], "d")
	d.Config = map[string]any{"log": f.log, "askItself": true, "sick": sick}
	applied := make(chan error, 1)
	go func() {
		_, err := f.Apply(t.Context(), append(specs, d))
		applied <- err
	}()
	eventually(t, "its hook has begun", func() bool { return slices.Contains(f.events(t), "post-start d") })
	if status, body := f.ask("GET", "/d", ""); status != http.StatusNotFound {
		t.Errorf("while it is brought up: %d %s", status, body)
	}
	removeFile(t, sick)
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	if status, body := f.ask("GET", "/d", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	f.settled(t)
}

// TestRequestKeepsTheOrderOfItsArrival has a stage pass a request on after the chain
// downstream has changed.
func TestRequestKeepsTheOrderOfItsArrival(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	// a sees all and hands on what is not its own; slow requests wait in it.
	f := ready(t, func(o *options) { o.Chain[0].Config["see"], o.Chain[0].Config["hand"] = []string{"/"}, file })
	specs := f.Specs()
	answers := make(chan string)
	for _, path := range []string{"/b", "/c"} {
		go func() {
			status, body := f.ask("GET", path+"?wait=1", "")
			answers <- http.StatusText(status) + " " + body
		}()
	}
	eventually(t, "two requests wait in a", func() bool { return f.relay.Loads()[0].InFlight == 2 })
	if _, err := f.Apply(t.Context(), []Spec{specs[0], specs[2], like(specs[1], "d"), specs[1]}); err != nil {
		t.Fatal(err)
	}
	touch(t, file)
	for range 2 {
		if got := <-answers; !strings.HasPrefix(got, "OK ") {
			t.Error(got)
		}
	}
	f.settled(t)
}

// TestTwoSwapsAtOnce refuses the second, whichever stage it is for, and lets a change of
// the chain wait.
func TestTwoSwapsAtOnce(t *testing.T) {
	t.Parallel()
	sick := filepath.Join(t.TempDir(), "sick")
	touch(t, sick)
	f := ready(t, nil)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := f.Swap(t.Context(), "b", SwapOptions{Change: changing(func(s *Spec) {
			s.Config = map[string]any{"log": f.log, "sick": sick}
		})})
		first <- err
	}()
	eventually(t, "the swap has begun", func() bool { return len(f.kinds(SwapBegun)) == 1 })
	for _, name := range []string{"b", "c"} {
		if _, err := f.Swap(t.Context(), name, SwapOptions{}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "under way") {
			t.Errorf("second swap, of %s: %v", name, err)
		}
	}
	specs := f.Specs()
	go func() {
		_, err := f.Apply(t.Context(), []Spec{specs[0], specs[2]})
		second <- err
	}()
	removeFile(t, sick)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	if got := f.names(); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("chain %q", got)
	}
	f.settled(t)
}

// TestProcessThatDiesDuringItsSwap holds requests until the new generation takes over, if
// the old one cannot be restarted.
func TestProcessThatDiesDuringItsSwap(t *testing.T) {
	t.Parallel()
	sick := filepath.Join(t.TempDir(), "sick")
	touch(t, sick)
	f := ready(t, nil)
	self := f.lose("b")
	done := make(chan error, 1)
	go func() {
		_, err := f.Swap(t.Context(), "b", SwapOptions{Change: changing(func(s *Spec) {
			s.Binary, s.Config = self, map[string]any{"log": f.log, "sick": sick}
		})})
		done <- err
	}()
	eventually(t, "the swap has begun", func() bool { return len(f.kinds(SwapBegun)) == 1 })
	kill(t, f.pid("b"))
	eventually(t, "requests are held", func() bool { return f.Status()[1].State == "backing off" })
	answer := make(chan int, 1)
	go func() {
		status, _ := f.ask("POST", "/b", "x")
		answer <- status
	}()
	eventually(t, "a request waits", func() bool { return f.relay.Loads()[1].Waiting == 1 })
	removeFile(t, sick)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if status := <-answer; status != http.StatusOK {
		t.Errorf("the request that waited: %d", status)
	}
	f.settled(t)
}

// TestRequestsInTheBacklogOfADeadProcess have not been executed: they go to the process
// that comes instead, writes too.
func TestRequestsInTheBacklogOfADeadProcess(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) { o.HoldTimeout = time.Minute })
	suspend(t, f.pid("b"))
	answer := make(chan int, 5)
	for range cap(answer) {
		go func() {
			status, _ := f.ask("POST", "/b", "x")
			answer <- status
		}()
	}
	eventually(t, "the requests are under way", func() bool { return f.relay.Loads()[1].InFlight >= cap(answer) })
	self := f.lose("b")
	kill(t, f.pid("b"))
	eventually(t, "requests are held", func() bool { return f.Status()[1].State == "backing off" })
	f.use("b", self)
	for range cap(answer) {
		if status := <-answer; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
}

func TestSwapMovesRequestsToTheNewGeneration(t *testing.T) {
	t.Parallel()
	f := ready(t, nil) // nothing but the swap is noted from now on
	old := f.pid("b")
	swapped, err := f.Swap(t.Context(), "b", SwapOptions{Change: changing(func(s *Spec) { s.Env["SWAPPED"] = "yes" })})
	if err != nil {
		t.Fatal(err)
	}
	if body, err := f.get("b"); err != nil || strings.HasPrefix(body, fmt.Sprint(old, " ")) {
		t.Errorf("after the swap the answer is %q, %v", body, err)
	}
	eventually(t, "the old process is gone", func() bool { return errors.Is(syscall.Kill(old, 0), syscall.ESRCH) })
	eventually(t, "the old generation is forgotten", func() bool {
		st := f.Status()[1]
		return st.Generation == swapped.To && st.State == "serving" && len(st.Others) == 0 && st.Restarts == 0
	})
	events := f.events(t)
	if got := events[len(events)-2:]; !slices.Equal(got, []string{"pre-shutdown b", "destroy b"}) {
		t.Errorf("the old generation ended with %q", got)
	}
	// A crash of the new one is a restart on the new one's socket.
	kill(t, f.pid("b"))
	if body, err := f.get("b"); err != nil || body == "" {
		t.Errorf("after a crash of the new generation: %q, %v", body, err)
	}
}

func TestFailedSwapLeavesTheOldGeneration(t *testing.T) {
	t.Parallel()
	f, err := start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Error(err) })
	old := f.pid("b")
	for name, change := range map[string]func(*Spec){
		"no such file":     func(s *Spec) { s.Binary = "/nonexistent" },
		"colour":           func(s *Spec) { s.Config = map[string]any{"colour": "red"} },
		"does not like":    func(s *Spec) { s.Config = map[string]any{"log": f.log, "hook": "fail"} },
		"ends the process": func(s *Spec) { s.Config = map[string]any{"log": f.log, "hook": "exit"} },
	} {
		_, err := f.Swap(t.Context(), "b", SwapOptions{Change: changing(change)})
		if err == nil || !strings.Contains(err.Error(), `stage "b" goes on with its old generation`) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if body, err := f.get("b"); err != nil || !strings.HasPrefix(body, fmt.Sprint(old, " ")) {
		t.Errorf("after failed swaps the answer is %q, %v; want it from process %d", body, err, old)
	}
	if st := f.Status()[1]; len(st.Others) != 0 || st.PID != old {
		t.Errorf("left behind: %+v", st)
	}
}
