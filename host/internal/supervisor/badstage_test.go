package supervisor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/sdk"
)

// envFault makes a test stage do something that it should not.
const envFault = "SUPERVISOR_TEST_FAULT"

// constructor returns what makes a stage with that fault, or the good one if it is empty.
func constructor(fault string) func(*sdk.Env) (http.Handler, error) {
	if fault == "" {
		return newTestStage
	}
	return func(env *sdk.Env) (http.Handler, error) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getpid()) })
		switch fault {
		case "claims":
			env.Claim("/" + env.Name)
			go changeClaims(env)
		case "hooks":
			env.Claim("/" + env.Name)
			env.PostStartHook("never", func(context.Context) error { select {} })
			env.PreShutdownHook("never", func(context.Context) error { select {} })
			env.HealthCheck("never", sdk.HealthKinds{}, func(context.Context) error { select {} })
		case "descriptors":
			env.Claim("/" + env.Name)
			return leak(env), nil
		}
		return handler, nil
	}
}

// changeClaims changes the claims as fast as it can, for as long as the stage lives.
func changeClaims(env *sdk.Env) {
	for i := 0; env.Context().Err() == nil; i++ {
		env.SetClaims(sdk.Exact("/"+env.Name), sdk.Exact(fmt.Sprintf("/%s/%d", env.Name, i)))
	}
}

// leak opens files until there are no descriptors left, at the first request.
func leak(env *sdk.Env) http.Handler {
	limit := syscall.Rlimit{Cur: 100, Max: 100}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		env.Log.Error("no limit", "error", err)
	}
	var files []*os.File
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			files = append(files, f)
		}
		fmt.Fprintf(w, "%d files", len(files))
	})
}

// A stage that changes its claims all the time is published now and then, the others are
// not disturbed, and what it claims in the end holds.
func TestClaimsThatChangeAllTheTime(t *testing.T) {
	t.Parallel()
	var publications atomic.Int64
	f, err := start(t, func(o *Options) {
		o.Chain[1].Env[envFault] = "claims"
		publish := o.Publish
		o.Publish = func(p []Published) { publications.Add(1); publish(p) }
	})
	if err != nil {
		t.Fatal(err)
	}
	claim := func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range f.published[1].Claims {
			if path := c.GetPath(); path != "/b" {
				return path
			}
		}
		return ""
	}
	began, before := time.Now(), publications.Load()
	seen := map[string]bool{}
	eventually(t, "claims of many moments are published", func() bool { seen[claim()] = true; return len(seen) > 20 })
	took := time.Since(began)
	if n, most := publications.Load()-before, int64(took/publishPause)+10; n > most {
		t.Errorf("%d publications in %s, at most %d are wanted", n, took, most)
	}
	for _, name := range []string{"a", "c"} {
		if _, err := f.get(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Hooks and checks that never come back hold up nothing but what waits for them.
func TestHooksThatNeverComeBack(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *Options) { o.Chain[1].Env[envFault] = "hooks" })
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Errorf("a hook has failed: %v", err) })
	failing := func() map[string]string {
		failed := map[string]string{}
		for _, c := range f.Checks() {
			if err := c.Run(t.Context()); err != nil {
				failed[c.Name] = err.Error()
			}
		}
		return failed
	}
	eventually(t, "the checks of the others pass", func() bool {
		for name := range failing() {
			if !strings.HasPrefix(name, "b/") {
				return false
			}
		}
		return true
	})
	got := failing()
	if got["b/poststarthook/never"] != "not finished" || !strings.Contains(got["b/never"], "did not come back in time") || len(got) != 2 {
		t.Errorf("failing: %q", got)
	}
	err = f.RunPreShutdownHooks(t.Context(), 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "never") || !strings.Contains(err.Error(), "b") {
		t.Errorf("pre-shutdown hooks: %v", err)
	}
	began := time.Now()
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the end took %s", took)
	}
}

// A stage without descriptors takes no new connections; the host's log says why.
func TestDescriptorsThatLeak(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	f, err := start(t, func(o *Options) {
		o.Chain[1].Env[envFault] = "descriptors"
		o.StageLog = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})
	})
	if err != nil {
		t.Fatal(err)
	}
	if body, err := f.get("b"); err != nil || !strings.HasSuffix(body, "files") {
		t.Fatalf("first: %q, %v", body, err)
	}
	go func() { _, _ = f.get("b") }()
	eventually(t, "the log says why", func() bool { return strings.Contains(log.String(), "too many open files") })
	for _, name := range []string{"a", "c"} {
		if _, err := f.get(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

var _ io.Writer = (*syncBuffer)(nil)

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
