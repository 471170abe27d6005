//go:build linux

package process

import (
	"context"
	"errors"
	"os"
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
	case <-time.After(patience):
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
			t.Errorf("%q lacks %q", err, want)
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

// A stage that cannot do AutoMTLS works without, which Control reports.
func TestControl(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]Control{"good": ControlMTLS, "plain": ControlDirectory} {
		p := newFixture(t, mode).start(t)
		if err := configure(t.Context(), p, ""); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if got := p.Control(); got != want {
			t.Errorf("%s: %s, want %s", mode, got, want)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
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

// The pipes of a process outlive it in a child that holds them. Its end is noticed nevertheless,
// and what is in its group ends with it.
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
			ctx, cancel := context.WithTimeout(t.Context(), patience)
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
