//go:build linux

package process

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func TestErrorOfTheStageKeepsItsCode(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "good").start(t)
	err := configure(t.Context(), p, "fail")
	if want := `stage "test": Configure: beans: must be positive`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = p.Client().PrepareRun(t.Context(), &stagev1.PrepareRunRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("method that the stage lacks: %v", err)
	}
	watch, err := p.Client().Watch(t.Context(), &stagev1.WatchRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	var call *CallError
	if !errors.As(err, &call) || call.Stage != "test" || call.Method != "Watch" || status.Code(err) != codes.Unimplemented {
		t.Errorf("stream that the stage lacks: %v", err)
	}
}

func TestOutputBecomesLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	p := f.start(t)
	for _, what := range []string{"print", "log", "odd-json"} {
		if err := configure(t.Context(), p, what); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"[INFO]  test: printed to stdout\n",
		"[INFO]  test: printed to stderr\n",
		"[WARN]  test: low on beans: left=3\n",
		`[INFO]  test: {"@level":7,"@message":{"a":1},"@timestamp":[]}`,
	} {
		eventually(t, "the log has "+want, func() bool { return strings.Contains(f.log.String(), want) })
	}
}

// A stage that writes as fast as it can fills neither the host's log nor its
// memory, and still responds and stops.
func TestFlood(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "floods")
	began := time.Now()
	p := f.start(t)
	eventually(t, "the budget is used up", p.logs.flooding.Load)
	if err := configure(t.Context(), p, ""); err != nil {
		t.Errorf("call during the flood: %v", err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stop during the flood: %v", err)
	}
	// The reports of dropped lines are not part of the budget.
	most := bounds.LogBurst + int(time.Since(began).Seconds()*(bounds.LogPerSecond+1)) + 100
	if n := strings.Count(f.log.String(), "\n"); n > most {
		t.Errorf("%d lines reached the log, want %d at most", n, most)
	}
	if !strings.Contains(f.log.String(), "lines were dropped") {
		t.Error("the log does not report dropped lines")
	}
}

// blockedLog blocks every write until it is closed.
type blockedLog chan struct{}

func (l blockedLog) Write(p []byte) (int, error) {
	<-l
	return len(p), nil
}

// A host whose own log is blocked still learns that a process has ended, and why.
func TestErrDoesNotWaitForTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	blocked := make(blockedLog)
	f.spec.Logger = hclog.New(&hclog.LoggerOptions{Output: blocked})
	p := f.start(t)
	t.Cleanup(func() { close(blocked) })
	_ = configure(t.Context(), p, "panic")
	awaitDone(t, p)
	reason := make(chan error, 1)
	go func() { reason <- p.Err() }()
	select {
	case err := <-reason:
		if err == nil || !strings.Contains(err.Error(), "exited with status 2") {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Error("Err blocks")
	}
}

// The last output is part of the reason, though another process holds the pipes.
func TestLastOutputBesideADaemon(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "daemon").start(t)
	daemon, err := strconv.Atoi(p.Description().GetVersion())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGKILL) })
	_ = configure(t.Context(), p, "panic")
	awaitDone(t, p)
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "panic: no such table") {
		t.Errorf("got %v", err)
	}
}

func TestEnvironmentOfStage(t *testing.T) {
	testEnvironment(t, false, false)
	testEnvironment(t, false, true)
	testEnvironment(t, true, false)
}

func testEnvironment(t *testing.T, trusted, network bool) {
	f := newFixture(t, "environment")
	f.spec.Trusted, f.spec.Isolation.Network = trusted, network
	f.spec.Env["BEANS"] = "7"
	f.spec.Env[stagev1.EnvListener] = "99"
	f.spec.HostEnv = []string{"PATH=/bin", "AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "https_proxy=p", "KUBECONFIG=/k", "GOGC=50",
		"DISABLE_HTTP2=1", "HTTP2_PING_TIMEOUT_SECONDS=7", "GRPC_GO_LOG_SEVERITY_LEVEL=info", "OTEL_EXPORTER_OTLP_HEADERS=authorization=x",
		"KUBE_FEATURE_WatchListClient=true", "KUBE_TOKEN=x", "GRPC_PROXY_EXP=http://u:p@proxy", "ALL_PROXY=u:p",
		"NOTIFY_SOCKET=/n", "WATCHDOG_USEC=1", "WATCHDOG_PID=1", "LISTEN_FDS=1", "LISTEN_PID=1", "LISTEN_FDNAMES=a"}
	p := f.start(t)
	got := map[string]string{}
	for line := range strings.SplitSeq(p.Description().GetSummary(), `\n`) { // line breaks in a description are escaped
		name, value, _ := strings.Cut(line, "=")
		got[name] = value
	}
	for name, want := range map[string]string{
		"PATH": "/bin", "LC_ALL": "C", "KUBE_FEATURE_WatchListClient": "true", "GOGC": "50", "BEANS": "7",
		"DISABLE_HTTP2": "1", "HTTP2_PING_TIMEOUT_SECONDS": "7", "GRPC_GO_LOG_SEVERITY_LEVEL": "info",
		stagev1.EnvListener: "3", stagev1.EnvParent: "4", stagev1.EnvLogLevel: "debug",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "KUBECONFIG", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		if _, found := got[name]; found {
			t.Errorf("%s reached the stage", name)
		}
	}
	for name, may := range map[string]bool{
		"OTEL_EXPORTER_OTLP_HEADERS": trusted, "KUBE_TOKEN": trusted, "GRPC_PROXY_EXP": trusted,
		"https_proxy": trusted || network, "ALL_PROXY": trusted || network,
	} {
		if _, found := got[name]; found != may {
			t.Errorf("%s reached a stage, %t, that is as powerful as the server, %t, or may use the network, %t",
				name, found, trusted, network)
		}
	}
	if dir := got["PLUGIN_UNIX_SOCKET_DIR"]; !strings.HasPrefix(dir, f.spec.RuntimeDir) {
		t.Errorf("control socket in %q", dir)
	}
}
