package supervisor

import (
	"context"
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

	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/relay"
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

type fixture struct {
	*Supervisor
	log string

	relay *relay.Chain
	// gate is held during each publication.
	gate sync.Mutex

	mu        sync.Mutex
	published []Published
	happened  []Event
}

// options are those of New and what Start gets.
type options struct {
	Options
	Outlet
}

// start brings up a chain of the stages a, b and c.
func start(t *testing.T, change func(*options)) (*fixture, error) {
	t.Helper()
	return startWith(t, func(*fixture) error { return nil }, change)
}

// startWith brings up the chain with a store that opens as store says.
func startWith(t *testing.T, store func(*fixture) error, change func(*options)) (*fixture, error) {
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
	hostSocket := filepath.Join(run, "host.sock")
	log := hclog.New(&hclog.LoggerOptions{Output: newTestLog(t), Level: hclog.Debug})
	opts := options{
		Options: Options{
			DataDir: t.TempDir(), RuntimeDir: run, Log: log, StageLog: log.Named, HoldTimeout: patience,
			HostSocket: func(string) (string, func(), error) { return hostSocket, func() {}, nil },
		},
		Outlet: Outlet{
			Publish: func(chain []Published, split *Split) {
				f.gate.Lock() // a test can hold it
				defer f.gate.Unlock()
				f.mu.Lock()
				defer f.mu.Unlock()
				f.published = chain
				if split == nil {
					f.relay.Set(relay.Tables{All: table(chain)}, stages(chain))
					return
				}
				f.relay.SetSplit(relay.Tables{All: table(chain)}, stages(chain), relay.Split{
					Tables: relay.Tables{All: table(split.Chain)}, Stages: stages(split.Chain),
					Includes: func(r *http.Request) bool { return canary.Includes(r.URL.Query().Get("client"), split.Share) },
				})
			},
			AwaitEmpty: func(ctx context.Context, socket string) error { return f.relay.AwaitEmpty(ctx, socket) },
			Events: func(e Event) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.happened = append(f.happened, e)
			},
		},
	}
	f.serve(t, hostSocket)
	for _, name := range []string{"a", "b", "c"} {
		opts.Chain = append(opts.Chain, Spec{
			Process: Process{
				Name: name, Binary: self, User: "user-" + name, Grants: grants.All(),
				Config: map[string]any{"log": f.log}, Env: map[string]string{envStage: name},
			},
			Policy: Policy{StartTimeout: patience, Required: true, DrainTimeout: patience},
		})
	}
	if change != nil {
		change(&opts)
	}
	f.Supervisor, err = New(callers.New(nil), opts.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Stop() })
	up := func(string, string, int, time.Duration) {}
	return f, f.Start(t.Context(), opts.Outlet, func() error { return store(f) }, up)
}

// testLog passes log lines on for as long as the test runs.
type testLog struct {
	mu sync.Mutex
	t  *testing.T // nil when it has ended
}

func newTestLog(t *testing.T) *testLog {
	l := &testLog{t: t}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.t = nil
	})
	return l
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
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

// socket is the path of a stage's data socket.
func (f *fixture) socket(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.published, func(p Published) bool { return p.Name == name })
	return f.published[i].Socket
}

// get asks a stage over its data socket.
func (f *fixture) get(name string) (string, error) {
	socket := f.socket(name)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
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
	if g := f.current(name); g != nil {
		return g.PID()
	}
	return 0
}

// current is the generation of a stage that requests go to.
func (f *fixture) current(name string) *generation.Generation {
	held := f.lock()
	defer held.unlock()
	st, err := held.stage(name)
	if err != nil {
		return nil
	}
	return st.guarded.current()
}

// changing is a change of a Spec that cannot fail.
func changing(change func(*Spec)) func(*Spec) error {
	return func(s *Spec) error {
		change(s)
		return nil
	}
}

// changeIsUnderWay reports whether a planned change has begun and is not over.
func (f *fixture) changeIsUnderWay() bool {
	if f.slots.chain.free.TryAcquire(1) {
		f.slots.chain.free.Release(1)
		return false
	}
	return true
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// kill kills a process, and returns when none of its threads is left: until then it can
// take a request.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is dead", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return !slices.ContainsFunc(threads, func(file string) bool {
			stat, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ")
		})
	})
}

// swap swaps a stage, as soon as no restart of it is under way.
func (f *fixture) swap(t *testing.T, name string, opts SwapOptions) (swapped *Swapped, err error) {
	t.Helper()
	eventually(t, "no other change is under way", func() bool {
		swapped, err = f.Swap(t.Context(), name, opts)
		return !errors.Is(err, ErrBusy)
	})
	return swapped, err
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
	if err := f.RunPreShutdownHooks(t.Context(), patience); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

func TestFailedHookNamesItselfAndItsStage(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *options) { o.Chain[1].Config["hook"] = "fail" })
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
	case <-time.After(patience):
		t.Fatal("a failed hook was not reported")
	}
}

func TestStageThatEndsItselfInAHookEndsTheServer(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *options) { o.Chain[1].Config["hook"] = "exit" })
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
	case <-time.After(patience):
		t.Fatal("the end of the stage was not reported")
	}
}

func TestStartFailsWithTheStagesOwnError(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *options) { o.Chain[2].Config = map[string]any{"colour": "red"} })
	if err == nil || !strings.Contains(err.Error(), `stage "c"`) || !strings.Contains(err.Error(), "colour") {
		t.Fatalf("got %v, want an error that names stage c and the key", err)
	}
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
}

// A store that does not open ends the start of stages that have been launched, before one is configured.
func TestStagesAreLaunchedWhileTheStoreOpens(t *testing.T) {
	t.Parallel()
	failed := errors.New("no store")
	var pids []int
	f, err := startWith(t, func(f *fixture) error {
		held := f.lock()
		defer held.unlock()
		for _, st := range held.chain {
			for _, g := range st.guarded.generations {
				pids = append(pids, g.PID())
			}
		}
		return failed
	}, nil)
	if !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	if len(pids) != 3 {
		t.Errorf("%d stages were launched before", len(pids))
	}
	if _, err := os.Stat(f.log); !os.IsNotExist(err) {
		t.Errorf("a stage was configured: %q", f.events(t))
	}
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

func TestConfigurationsAreCheckedBeforeAnyIsUsed(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *options) { o.Chain[0].Config["hook"], o.Chain[1].Config["hook"] = "refused", "refused" })
	for _, want := range []string{"stages.a.config.hook: no such hook", "stages.b.config.hook: no such hook"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := os.Stat(f.log); !os.IsNotExist(err) {
		t.Errorf("a stage was configured: %q", f.events(t))
	}
}
