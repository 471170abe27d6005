package process

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

func configure(ctx context.Context, p *Process, what string) error {
	_, err := p.Client().Configure(ctx, &stagev1.ConfigureRequest{Config: []byte(what)})
	return err
}

func awaitDone(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the end of the process was not noticed")
	}
}

func alive(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func TestExitIsNoticedAndExplained(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "good").start(t)
	err := configure(t.Context(), p, "panic")
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), `stage "test": Configure: its process exited with status 2`) {
		t.Errorf("the call in which the process died: %v", err)
	}
	awaitDone(t, p)
	err = p.Err()
	for _, want := range []string{`stage "test"`, "exited with status 2", "panic: no such table", "testStage).Configure"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Killed || len(exit.Log) > tailLines {
		t.Errorf("%#v", err)
	}
	if err := configure(t.Context(), p, ""); status.Code(err) != codes.Unavailable {
		t.Errorf("call after the end: %v", err)
	}
}

func TestKilledByOthers(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "good").start(t)
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	if err := p.Err(); !strings.Contains(err.Error(), "out-of-memory") {
		t.Errorf("got %v", err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Errorf("kill of a dead process: %v", err)
	}
}

// The pipes of a process outlive it in a child that holds them. That must not hide
// its end, and what is in its group ends with it.
func TestGrandchildHoldsPipes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grandchild", "daemon"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, mode).start(t)
			child, err := strconv.Atoi(p.Description().GetVersion())
			if err != nil || !alive(child) {
				t.Fatalf("no grandchild: %v", err)
			}
			t.Cleanup(func() { syscall.Kill(child, syscall.SIGKILL) })
			began := time.Now()
			if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			awaitDone(t, p)
			t.Logf("noticed after %s", time.Since(began))
			if p.Err() == nil {
				t.Error("no error after the end")
			}
			if mode == "grandchild" {
				eventually(t, "the group ends with its leader", func() bool { return !alive(child) })
			}
			if err := p.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSuspendedProcessCanBeKilled(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "good").start(t)
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := configure(ctx, p, "wait")
	if status.Code(err) != codes.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call of a suspended stage: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = p.Stop(ctx)
	if err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("stop of a suspended stage: %v", err)
	}
	if alive(p.PID()) {
		t.Error("still there")
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode, want string
		within     time.Duration
	}{
		{mode: "good"},
		{mode: "exits-in-stop"},
		{mode: "fails-in-stop", want: "disk on fire"},
		{mode: "hangs-in-stop", want: "did not end by itself and was killed", within: 200 * time.Millisecond},
		{mode: "lingers", want: "did not end by itself and was killed"},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, tc.mode).start(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if tc.within != 0 {
				ctx, cancel = context.WithTimeout(t.Context(), tc.within)
			}
			defer cancel()
			err := p.Stop(ctx)
			if tc.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if alive(p.PID()) {
				t.Error("still there")
			}
			if err := p.Stop(t.Context()); tc.want == "" && err != nil {
				t.Errorf("second stop: %v", err)
			}
		})
	}
}

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
		eventually(t, "the log says "+want, func() bool { return strings.Contains(f.log.String(), want) })
	}
}

// A stage that writes as fast as it can fills neither the host's log nor its
// memory, and still answers and stops.
func TestFlood(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "floods")
	p := f.start(t)
	eventually(t, "the budget is used up", p.logs.flooding.Load)
	if err := configure(t.Context(), p, ""); err != nil {
		t.Errorf("call during the flood: %v", err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stop during the flood: %v", err)
	}
	if n := strings.Count(f.log.String(), "\n"); n > 3*logBurst {
		t.Errorf("%d lines reached the log", n)
	}
	if !strings.Contains(f.log.String(), "lines were dropped") {
		t.Error("the log does not say that lines are missing")
	}
}

func TestEnvironmentOfStage(t *testing.T) {
	f := newFixture(t, "environment")
	f.spec.Env["BEANS"] = "7"
	f.spec.Env[stagev1.EnvListener] = "99"
	f.spec.HostEnv = []string{"PATH=/bin", "AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "https_proxy=p", "KUBECONFIG=/k", "GOGC=50"}
	p := f.start(t)
	got := map[string]string{}
	for line := range strings.SplitSeq(p.Description().GetSummary(), "\n") {
		name, value, _ := strings.Cut(line, "=")
		got[name] = value
	}
	for name, want := range map[string]string{
		"PATH": "/bin", "LC_ALL": "C", "https_proxy": "p", "GOGC": "50", "BEANS": "7",
		stagev1.EnvListener: "3", stagev1.EnvParent: "4",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "KUBECONFIG"} {
		if _, found := got[name]; found {
			t.Errorf("%s reached the stage", name)
		}
	}
	if dir := got["PLUGIN_UNIX_SOCKET_DIR"]; !strings.HasPrefix(dir, f.spec.RuntimeDir) {
		t.Errorf("control socket in %q", dir)
	}
}

// get asks whoever serves the data socket for its process id.
func get(t *testing.T, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	resp, err := client.Get("http://stage/")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// A request that comes while no process runs is answered by the next one.
func TestListenerOutlivesProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "serves")
	first := f.start(t)
	if got := get(t, first.Socket()); got != strconv.Itoa(first.PID()) {
		t.Errorf("answer %q of process %d", got, first.PID())
	}
	if err := first.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer := make(chan string)
	go func() { answer <- get(t, f.spec.Listener.Path()) }()
	second := f.start(t)
	if got := <-answer; got != strconv.Itoa(second.PID()) {
		t.Errorf("answer %q, not of process %d", got, second.PID())
	}
}

// What runs is the file that was checked, whatever its path names by then.
func TestCheckedFileIsStarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	sum, err := Digest(f.spec.Binary)
	if err != nil {
		t.Fatal(err)
	}
	spec := f.spec.withDefaults()
	spec.SHA256 = strings.ToUpper(sum)
	file, err := spec.open()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Remove(spec.Binary); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spec.Binary, []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := newProcess(spec)
	if err := p.bringUp(t.Context(), file); err != nil {
		t.Fatal(p.abandon(t.Context(), err))
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) != "catena-stage-te" {
		t.Errorf("the process is called %q in ps (%v)", comm, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWrongDigest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	f.spec.SHA256 = strings.Repeat("0", 64)
	_, err := Start(t.Context(), f.spec)
	if err == nil || !strings.Contains(err.Error(), "the configuration wants 0000") {
		t.Errorf("got %v", err)
	}
}

// A stage does not outlive a host that is killed, be it that the kernel ends it or
// that it watches the host itself, and leaves nothing that the next start minds.
func TestHostIsKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"good", "watches-parent"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, mode)
			host := exec.Command(f.spec.Binary, f.spec.RuntimeDir, f.spec.Binary, mode)
			host.Env = append(os.Environ(), envMode+"=host")
			host.Stderr = os.Stderr
			if err := f.spec.Listener.Close(); err != nil {
				t.Fatal(err)
			}
			out, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil || !alive(pid) {
				t.Fatalf("stage %q is not there (%v)", line, err)
			}
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait()
			eventually(t, "the stage ends with its host", func() bool { return !alive(pid) })
			if err := PrepareRuntimeDir(f.spec.RuntimeDir, []string{"test"}); err != nil {
				t.Fatal(err)
			}
			expectEmpty(t, f.spec.RuntimeDir)
		})
	}
}

// Stages that end together are all noticed, and starts do not wait for each other.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p, err := Start(t.Context(), f.spec)
			if err != nil {
				t.Error(err)
				return
			}
			if err := p.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if err := p.Err(); !strings.Contains(err.Error(), "was killed by this host") {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
}

func BenchmarkExitNotice(b *testing.B) {
	f := newFixture(b, "good")
	var total time.Duration
	for b.Loop() {
		p, err := Start(b.Context(), f.spec)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		<-p.Done()
		total += time.Since(began)
		if err := p.Kill(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs-to-notice")
}
