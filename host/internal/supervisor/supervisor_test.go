package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/relay"
)

type fixture struct {
	*Supervisor
	log string

	relay *relay.Chain

	mu        sync.Mutex
	published []Published
	happened  []Event
}

// start brings up a chain of the stages a, b and c.
func start(t *testing.T, change func(*Options)) (*fixture, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Sockets need short paths.
	run, err := os.MkdirTemp("", "sup")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	f := &fixture{log: filepath.Join(t.TempDir(), "log")}
	log := hclog.New(&hclog.LoggerOptions{Output: testLog{t}, Level: hclog.Debug})
	opts := Options{
		DataDir: t.TempDir(), RuntimeDir: run, Log: log, StageLog: log, HoldTimeout: 10 * time.Second,
		Publish: func(chain []Published) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.published = chain
			f.relay.Set(table(chain), stages(chain))
		},
		HostSocket: filepath.Join(run, "host.sock"),
		Events: func(e Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.happened = append(f.happened, e)
		},
	}
	f.serve(t, opts.HostSocket)
	for _, name := range []string{"a", "b", "c"} {
		opts.Chain = append(opts.Chain, Spec{
			Name: name, Binary: self, User: "user-" + name, StartTimeout: 20 * time.Second, Required: true,
			DrainTimeout: 10 * time.Second,
			Config:       map[string]any{"log": f.log}, Env: map[string]string{envStage: name},
		})
	}
	if change != nil {
		change(&opts)
	}
	f.Supervisor, err = New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Stop() })
	return f, f.Start(t.Context(), func(string, string, int, time.Duration) {})
}

// testLog passes log lines on for as long as the test runs.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func (f *fixture) events(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(f.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// get asks a stage over its data socket.
func (f *fixture) get(name string) (string, error) {
	f.mu.Lock()
	i := slices.IndexFunc(f.published, func(p Published) bool { return p.Name == name })
	socket := f.published[i].Socket
	f.mu.Unlock()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	resp, err := client.Get("http://stage/" + name)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func (f *fixture) pid(name string) int {
	for _, st := range f.chain() {
		if st.name == name {
			return st.generation().proc.PID()
		}
	}
	return 0
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestChainComesUpAndGoesDownInOrder(t *testing.T) {
	t.Parallel()
	f, err := start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.events(t), []string{"configure c", "configure b", "configure a", "prepare c", "prepare b", "prepare a"}; !slices.Equal(got, want) {
		t.Errorf("start went %q, want %q", got, want)
	}
	if body, err := f.get("a"); err != nil || !strings.HasSuffix(body, "[b[/b] c[/c]]") {
		t.Errorf("head answers %q, %v; want it to know the paths of b and c", body, err)
	}

	f.RunPostStartHooks(func(err error) { t.Error(err) })
	for _, c := range f.Checks() {
		eventually(t, c.Name+" passes", func() bool { return c.Run(t.Context()) == nil })
	}
	if err := f.RunPreShutdownHooks(t.Context(), 5*time.Second); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	pids := []int{f.pid("a"), f.pid("b"), f.pid("c")}
	f.Drain(ctx, 0)
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	events := f.events(t)
	if got, want := events[len(events)-3:], []string{"destroy a", "destroy b", "destroy c"}; !slices.Equal(got, want) {
		t.Errorf("end went %q, want %q", got, want)
	}
}

func TestKilledStageComesBack(t *testing.T) {
	t.Parallel()
	f, err := start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Error(err) })
	eventually(t, "the hooks of b have run", func() bool { return slices.Contains(f.events(t), "post-start b") })
	old, token := f.pid("b"), f.chain()[1].generation().token
	if id, ok := f.Authenticate(token); !ok || id.Stage != "b" || id.User != "user-b" {
		t.Fatalf("token of b belongs to %+v, %t", id, ok)
	}
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The socket is the host's: a request that comes meanwhile waits in it.
	body, err := f.get("b")
	if err != nil || strings.HasPrefix(body, fmt.Sprint(old, " ")) || !strings.HasSuffix(body, "[c[/c]]") {
		t.Errorf("restarted stage answers %q, %v", body, err)
	}
	if _, ok := f.Authenticate(token); ok {
		t.Error("the token of the dead generation is still good")
	}
	eventually(t, "the hooks of b run again", func() bool {
		n := 0
		for _, e := range f.events(t) {
			if e == "post-start b" {
				n++
			}
		}
		return n == 2
	})
	if body, err := f.get("c"); err != nil || !strings.HasPrefix(body, fmt.Sprint(f.pid("c"), " ")) {
		t.Errorf("neighbour answers %q, %v", body, err)
	}
}

func TestFailedHookNamesItselfAndItsStage(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *Options) { o.Chain[1].Config["hook"] = "fail" })
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 3)
	f.RunPostStartHooks(func(err error) { failed <- err })
	select {
	case err := <-failed:
		if want := `post-start hook "start" of stage "b" failed: `; !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "the hook does not like it") {
			t.Errorf("got %q, want %q and the hook's own words", err, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a failed hook was not reported")
	}
}

func TestStageThatEndsItselfInAHookEndsTheServer(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *Options) { o.Chain[1].Config["hook"] = "exit" })
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 3)
	f.RunPostStartHooks(func(err error) { failed <- err })
	select {
	case err := <-failed:
		for _, want := range []string{`stage "b"`, "exited with status 255", "the hook ends the process"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %q", want, err)
			}
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the end of the stage was not reported")
	}
}

func TestStartFailsWithTheStagesOwnError(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *Options) { o.Chain[2].Config = map[string]any{"colour": "red"} })
	if err == nil || !strings.Contains(err.Error(), `stage "c"`) || !strings.Contains(err.Error(), "colour") {
		t.Fatalf("got %v, want an error that names stage c and the key", err)
	}
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
}

func TestConfigurationsAreCheckedBeforeAnyIsUsed(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *Options) { o.Chain[0].Config["hook"], o.Chain[1].Config["hook"] = "refused", "refused" })
	for _, want := range []string{"stages.a.config.hook: no such hook", "stages.b.config.hook: no such hook"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := os.Stat(f.log); !os.IsNotExist(err) {
		t.Errorf("a stage was configured: %q", f.events(t))
	}
}

func TestHungStageGivesAFailedCheckInTime(t *testing.T) {
	t.Parallel()
	f, err := start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := f.chain()[0].generation()
	suspend(t, g.proc.PID())
	defer func() { _ = syscall.Kill(g.proc.PID(), syscall.SIGCONT) }()
	done := make(chan error, 1)
	go func() { done <- g.check(t.Context(), "anything") }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a suspended stage is healthy")
		}
	case <-time.After(3 * checkTimeout):
		t.Error("the check of a suspended stage hangs")
	}
}

func TestSpecConfigIsJSON(t *testing.T) {
	t.Parallel()
	g := &generation{spec: Spec{Name: "x"}, stage: &stage{opts: &Options{}}}
	req, err := g.configureRequest(nil)
	if err != nil || string(req.GetConfig()) != "null" || !json.Valid(req.GetConfig()) {
		t.Errorf("no configuration is sent as %q, %v; want null", req.GetConfig(), err)
	}
}

func TestSwapMovesRequestsToTheNewGeneration(t *testing.T) {
	t.Parallel()
	f, err := start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Error(err) })
	old := f.pid("b")
	swapped, err := f.Swap(t.Context(), "b", SwapOptions{Change: func(s *Spec) { s.Env["SWAPPED"] = "yes" }})
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
	if err := syscall.Kill(f.pid("b"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
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
		_, err := f.Swap(t.Context(), "b", SwapOptions{Change: change})
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

func TestSuspendedStageIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *Options) {
		for i := range o.Chain {
			o.Chain[i].LivenessTimeout = 400 * time.Millisecond
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	old := f.pid("c")
	suspend(t, old)
	eventually(t, "another process serves", func() bool {
		st := f.Status()[2]
		return st.PID != old && st.State == "serving"
	})
	if body, err := f.get("c"); err != nil || body == "" {
		t.Errorf("answer %q, %v", body, err)
	}
}

func TestStageThatDoesNotComeBackIsTakenDown(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *Options) { o.HoldTimeout = 100 * time.Millisecond })
	if err != nil {
		t.Fatal(err)
	}
	st := f.chain()[1]
	st.mu.Lock()
	st.spec.Binary = "/nonexistent"
	st.mu.Unlock()
	if err := syscall.Kill(f.pid("b"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage is published without a socket, with its claims", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		b := f.published[1]
		return b.Socket == "" && len(b.Claims) == 1 && b.Failure != ""
	})
	// What keeps crashing can be swapped for what does not.
	self, _ := os.Executable()
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Change: func(s *Spec) { s.Binary = self }}); err != nil {
		t.Fatal(err)
	}
	if body, err := f.get("b"); err != nil || body == "" {
		t.Errorf("after the swap: %q, %v", body, err)
	}
}
