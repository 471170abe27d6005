package admin

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

// fakeHost responds with what it is asked, or with its error.
type fakeHost struct {
	Diagnostics

	asked   any
	err     error
	mu      sync.Mutex
	changes []Change
	begun   chan struct{} // closed when the swap of the stage "slow" has begun
}

func (*fakeHost) Status() Status { return Status{Signals: []Signal{{Name: "ServerStarted"}}} }

func (*fakeHost) Source() Source {
	return Source{Dir: "/d", Files: []string{"a", "b"}, Env: []string{"CATENA_A=b"}, Set: []string{"c=d"}, Flags: []config.CommandFlag{{Name: "--data-dir", Key: "dataDir", Value: "e"}}}
}

func (h *fakeHost) Swap(ctx context.Context, r SwapRequest) (*supervisor.Swapped, error) {
	if r.Stage == "slow" {
		close(h.begun)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	h.asked = r
	return &supervisor.Swapped{Stage: r.Stage}, h.err
}

func (h *fakeHost) Changed(c Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, c)
}

func (h *fakeHost) UpgradeHost(context.Context, HostUpgradeRequest) error { return h.err }

func (*fakeHost) Conclude(context.Context, ConcludeRequest) error { return nil }

func (h *fakeHost) PlanUpgrade(_ context.Context, r PlanRequest) (*upgrade.Plan, error) {
	return &upgrade.Plan{Stage: r.Stage}, h.err
}

func (h *fakeHost) Shadow(_ context.Context, r ShadowRequest) (*shadow.Summary, error) {
	return &shadow.Summary{Stage: r.Stage, Binary: r.Binary, Until: time.Unix(0, 0)}, h.err
}

func (h *fakeHost) ShadowReport() (*shadow.Report, error) {
	return &shadow.Report{Stage: "hello"}, h.err
}

func (h *fakeHost) StopShadow() (*shadow.Report, error) { return &shadow.Report{Stage: "hello"}, h.err }

func (h *fakeHost) Reload(context.Context) (*Reload, error) {
	return &Reload{Settings: []string{"log.level"}}, h.err
}

func (h *fakeHost) Logs(ctx context.Context, r LogRequest, send func(LogChunk) error) error {
	h.asked = r
	if h.err != nil {
		return h.err
	}
	err := send(LogChunk{Text: "a\n", Lost: 3})
	for err == nil && r.Follow {
		if ctx.Err() != nil {
			return nil
		}
		err = send(LogChunk{Text: strings.Repeat("x", 1<<10)})
	}
	return err
}

func (h *fakeHost) Explain(_ context.Context, r ExplainRequest) (*Explanation, error) {
	h.asked = r
	return &Explanation{Method: r.Method, Path: r.Path}, h.err
}

// serve serves a host on the socket of a new runtime directory.
func serve(t *testing.T, h Host) (c *Client, closeSocket func() error) {
	t.Helper()
	dir := t.TempDir()
	// What needs no grace does not take it.
	closeSocket, err := serveSocket(dir, h, guard.Own, log.New(io.Discard, "", 0), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeSocket() })
	return &Client{RuntimeDir: dir}, closeSocket
}

// What the client asks for reaches the host, and what that responds reaches the client.
func TestClientAndServer(t *testing.T) {
	t.Parallel()
	h := &fakeHost{}
	c, _ := serve(t, h)
	if got, err := c.Status(t.Context()); err != nil || !reflect.DeepEqual(got, h.Status()) {
		t.Errorf("status: %+v, %v", got, err)
	}
	if got, uid, err := c.Source(t.Context()); err != nil || uid != os.Geteuid() || !reflect.DeepEqual(got, h.Source()) {
		t.Errorf("source: %+v, %v", got, err)
	}
	swap := SwapRequest{Stage: "core", Binary: "/b", Rollback: supervisor.Rollback{ErrorRate: 0.5, Probation: time.Second}}
	if got, err := c.Swap(t.Context(), swap); err != nil || got.Stage != "core" || !reflect.DeepEqual(h.asked, swap) {
		t.Errorf("swap: %+v, %v, asked for %+v", got, err, h.asked)
	}
	if got, err := c.Reload(t.Context()); err != nil || len(got.Settings) != 1 {
		t.Errorf("reload: %+v, %v", got, err)
	}
	explain := ExplainRequest{Method: "GET", Path: "/a?b=c&d", As: "jane", Groups: []string{"x", "y"}}
	if got, err := c.Explain(t.Context(), explain); err != nil || got.Path != explain.Path || !reflect.DeepEqual(h.asked, explain) {
		t.Errorf("explain: %+v, %v, asked for %+v", got, err, h.asked)
	}
}

func TestClientGetsTheErrorsOfTheHost(t *testing.T) {
	t.Parallel()
	for _, want := range []error{ErrStarting, errors.New("not so")} {
		c, _ := serve(t, &fakeHost{err: want})
		_, swap := c.Swap(t.Context(), SwapRequest{Stage: "core"})
		_, reload := c.Reload(t.Context())
		_, explain := c.Explain(t.Context(), ExplainRequest{})
		for _, err := range []error{swap, reload, explain} {
			if err == nil || err.Error() != want.Error() {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	h := &fakeHost{}
	c, _ := serve(t, h)
	req := LogRequest{Names: []string{"a", "b"}, Level: "warn", Since: time.Unix(1, 2).UTC(), Tail: 7}
	var got LogChunk
	err := c.Logs(t.Context(), req, func(chunk LogChunk) error { got = chunk; return nil })
	if err != nil || got != (LogChunk{Text: "a\n", Lost: 3}) || !reflect.DeepEqual(h.asked, req) {
		t.Errorf("got %+v, %v, asked for %+v", got, err, h.asked)
	}
	failing, _ := serve(t, &fakeHost{err: errors.New("not so")})
	if err := failing.Logs(t.Context(), req, func(LogChunk) error { return nil }); err == nil || err.Error() != "not so" {
		t.Errorf("got %v", err)
	}
}

// A follower that does not read does not hold up the end of the host.
func TestFollowerThatDoesNotReadAtTheEnd(t *testing.T) {
	t.Parallel()
	c, closeSocket := serve(t, &fakeHost{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		first := true
		ended <- c.Logs(ctx, LogRequest{Tail: -1, Follow: true}, func(LogChunk) error {
			if first {
				first = false
				close(stuck)
				<-release
			}
			return nil
		})
	}()
	<-stuck
	closed := make(chan struct{})
	go func() {
		_ = closeSocket()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the socket waits for the follower")
	}
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("the follower: %v", err)
	}
}

// A host that ends says so to the commands that wait, and then there is none.
func TestServerEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	c, closeSocket := serve(t, &fakeHost{begun: begun})
	ended := make(chan error, 1)
	go func() {
		_, err := c.Swap(t.Context(), SwapRequest{Stage: "slow"})
		ended <- err
	}()
	<-begun
	_ = closeSocket()
	if err := <-ended; err == nil || err.Error() != errStopping.Error() {
		t.Errorf("got %v", err)
	}
	if _, err := c.Status(t.Context()); !IsNotRunning(err) {
		t.Errorf("after the end: %v", err)
	}
}

// A request that no command makes is refused before the host gets it: what checks its own flags is not all that can use the socket.
func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	h := &fakeHost{}
	c, _ := serve(t, h)
	shadow := ShadowRequest{Stage: "core", Binary: "/b", For: time.Minute, Sample: 0.1, Budget: 0.5}
	plan := PlanRequest{Stage: "core", Binary: "/b", Sample: 1}
	swap := SwapRequest{Stage: "core"}
	level := LogLevel{Name: "core", Level: "debug"}
	for want, spoil := range map[string]func(){
		"POST /shadow: stage":      func() { shadow.Stage = "" },
		"POST /shadow: binary":     func() { shadow.Binary = "b" },
		"POST /shadow: for":        func() { shadow.For = 0 },
		"POST /shadow: sample":     func() { shadow.Sample = 1.1 },
		"POST /shadow: budget":     func() { shadow.Budget = 0 },
		"POST /shadow: sha256":     func() { shadow.SHA256 = "abc" },
		"POST /upgrade/plan: bin":  func() { plan.Binary = "" },
		"POST /upgrade/plan: samp": func() { plan.Sample = 0 },
		"POST /swap: stage":        func() { swap.Stage = "" },
		"POST /swap: rollback":     func() { swap.Rollback.ErrorRate = 2 },
		"POST /swap: finalize":     func() { swap.Finalize, swap.Binary = true, "/b" },
		"POST /logs/levels: http":  func() { level.Level = strings.Repeat("x", maxRequest) },
		"POST /swap: the shares":   func() { swap.Canary = &canary.Plan{Shares: []float64{2}} },
	} {
		t.Run(want, func(t *testing.T) {
			before := []any{shadow, plan, swap, level}
			spoil()
			defer func() {
				shadow, plan, swap = before[0].(ShadowRequest), before[1].(PlanRequest), before[2].(SwapRequest)
				level = before[3].(LogLevel)
			}()
			h.asked = nil
			var err error
			switch {
			case strings.Contains(want, "shadow"):
				_, err = c.Shadow(t.Context(), shadow)
			case strings.Contains(want, "plan"):
				_, err = c.PlanUpgrade(t.Context(), plan)
			case strings.Contains(want, "levels"):
				err = c.SetLogLevel(t.Context(), level)
			default:
				_, err = c.Swap(t.Context(), swap)
			}
			if err == nil || !strings.Contains(err.Error(), want) || h.asked != nil {
				t.Errorf("%v; the host was asked for %v", err, h.asked)
			}
		})
	}
}
