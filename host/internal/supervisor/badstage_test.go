package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// envFault makes a test stage do something that it should not.
const envFault = "SUPERVISOR_TEST_FAULT"

// constructor returns what makes a stage with that fault, or the good one if it is empty.
func constructor(fault string) func(*sdk.Env) (http.Handler, error) {
	switch fault {
	case "":
		return newTestStage
	case "old":
		serveOld()
		os.Exit(0)
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

// oldStage is a stage that knows two methods of the protocol.
type oldStage struct {
	stagev1.UnimplementedStageServer
}

func (oldStage) Describe(context.Context, *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	return &stagev1.DescribeResponse{Name: os.Getenv(envStage), Version: "v0"}, nil
}

func (oldStage) Configure(context.Context, *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	return &stagev1.ConfigureResponse{Claims: []*stagev1.Claim{{Path: "/b", Match: stagev1.Claim_EXACT}}}, nil
}

// serveOld is the main function of an old stage: it was built without this SDK.
func serveOld() {
	fd, err := strconv.Atoi(os.Getenv(stagev1.EnvListener))
	if err != nil {
		panic(err)
	}
	ln, err := net.FileListener(os.NewFile(uintptr(fd), "data"))
	if err != nil {
		panic(err)
	}
	go func() {
		_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "old") }))
	}()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(), Plugins: stagev1.Plugins(oldStage{}), GRPCServer: plugin.DefaultGRPCServer,
		Logger: hclog.NewNullLogger(),
	})
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
	f, err := start(t, func(o *options) {
		o.Chain[1].Env[envFault] = "claims"
		publish := o.Publish
		o.Publish = func(p []Published, split *Split) { publications.Add(1); publish(p, split) }
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
	if n, most := publications.Load()-before, int64(took/bounds.EventPause)+10; n > most {
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
	f, err := start(t, func(o *options) { o.Chain[1].Env[envFault] = "hooks" })
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
	var got map[string]string
	eventually(t, "the checks of the others pass", func() bool {
		got = failing()
		for name := range got {
			if !strings.HasPrefix(name, "b/") {
				return false
			}
		}
		return true
	})
	if got["b/poststarthook/never"] != "not finished" || !strings.Contains(got["b/never"], "did not come back in time") || len(got) != 2 {
		t.Errorf("failing: %q", got)
	}
	err = f.RunPreShutdownHooks(t.Context(), 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), `pre-shutdown hook "never" of stage "b" failed: no response within 300ms; raise preShutdownTimeout`) {
		t.Errorf("pre-shutdown hooks: %v", err)
	}
	began := time.Now()
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("the end took %s", took)
	}
}

// A stage that was built against the first protocol, and knows no method that is
// optional, serves, is restarted, swapped and stopped as any other.
func TestOldStage(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *options) { o.Chain[1].Env[envFault] = "old" })
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Errorf("a hook has failed: %v", err) })
	served := func() bool { body, err := f.get("b"); return err == nil && body == "old" }
	if !served() {
		t.Error("it does not serve")
	}
	pid := f.pid("b")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool { return f.pid("b") != pid && served() })
	if _, err := f.swap(t, "b", SwapOptions{}); err != nil {
		t.Errorf("swap: %v", err)
	}
	if !served() {
		t.Error("it does not serve after the swap")
	}
	if st := f.Status()[1]; st.Version != "v0" || st.State != "serving" {
		t.Errorf("status %+v", st)
	}
	if err := f.RunPreShutdownHooks(t.Context(), patience); err != nil {
		t.Error(err)
	}
	f.Drain(t.Context(), 0)
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
}

// A stage without descriptors takes no new connections; the host's log says why.
func TestDescriptorsThatLeak(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	f, err := start(t, func(o *options) {
		o.Chain[1].Env[envFault] = "descriptors"
		o.StageLog = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug}).Named
	})
	if err != nil {
		t.Fatal(err)
	}
	if body, err := f.get("b"); err != nil || !strings.HasSuffix(body, "files") {
		t.Fatalf("first: %q, %v", body, err)
	}
	for range 3 { // the end of the first request may have left room for one
		c, err := net.Dial("unix", f.socket("b"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
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
