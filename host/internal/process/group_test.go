//go:build linux

package process

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/isolation"
)

// cgroups returns a tree for the processes of a test, which needs a cgroup that is delegated.
func cgroups(t *testing.T) *cgroup.Tree {
	t.Helper()
	name, err := cgroup.Name(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree := cgroup.Open(name)
	if err := tree.Err(); err != nil {
		t.Skip("no cgroup v2 is delegated here: ", err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

// cgroupOf is the name of the cgroup of a process.
func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut("\n"+string(text), "\n0::")
	return strings.TrimSpace(name)
}

// What a stage has started in a session of its own ends with the stage, however that ends, if
// it has a cgroup.
func TestDaemonEndsWithItsStage(t *testing.T) {
	t.Parallel()
	weak := isolation.Detect(t.Context())
	weak.Namespaces = errors.New("forbidden by the test") // without a process namespace
	for kind, change := range map[string]func(*Spec){
		"limited":  func(s *Spec) { s.Limits.PIDs = 100 },
		"isolated": func(s *Spec) { s.Isolation.Mode, s.Machine = isolation.Auto, weak },
	} {
		for how, end := range map[string]func(*testing.T, *Process) error{
			"killed":           func(t *testing.T, p *Process) error { return p.Kill(t.Context()) },
			"stopped":          func(t *testing.T, p *Process) error { return p.Stop(t.Context()) },
			"killed by others": func(_ *testing.T, p *Process) error { return syscall.Kill(p.PID(), syscall.SIGKILL) },
		} {
			t.Run(kind+"/"+how, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, "daemon")
				f.spec.Cgroups, f.spec.ID = cgroups(t), "0"
				change(&f.spec)
				p := f.start(t)
				daemon, err := strconv.Atoi(p.Description().GetVersion())
				if err != nil || !alive(daemon) {
					t.Fatalf("no daemon: %v", err)
				}
				t.Cleanup(func() { syscall.Kill(daemon, syscall.SIGKILL) })
				if got := cgroupOf(t, daemon); got != cgroupOf(t, p.PID()) || !strings.HasSuffix(got, "/test-0") {
					t.Errorf("the daemon is in %s", got)
				}
				if !slices.Contains(p.Isolation(), cgroup.Means) {
					t.Errorf("isolated by %v", p.Isolation())
				}
				if err := end(t, p); err != nil {
					t.Error(err)
				}
				awaitDone(t, p)
				eventually(t, "the daemon ends with its stage", func() bool { return !alive(daemon) })
				eventually(t, "the group is removed", func() bool {
					g, err := f.spec.Cgroups.New("test-0", cgroup.Limits{})
					return err == nil && g.Remove() == nil
				})
			})
		}
	}
}

// A process that is neither isolated nor limited is left where it is.
func TestNoCgroupWithoutNeed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	f.spec.Cgroups = cgroups(t)
	p := f.start(t)
	if got, own := cgroupOf(t, p.PID()), cgroupOf(t, os.Getpid()); got != own || len(p.Isolation()) > 0 {
		t.Errorf("it is in %s, not %s; isolated by %v", got, own, p.Isolation())
	}
}

// A limit that the machine cannot keep is logged once, and refused if the isolation is required.
func TestLimitsThatLack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	f.spec.Limits = cgroup.Limits{Memory: 1 << 30, CPU: 500, PIDs: 100}
	p := f.start(t)
	for _, limit := range []string{cgroup.CPU, cgroup.PIDs} {
		want := `a limit is not in force: limit=stages.test.limits.` + limit + ` lacks="there is no cgroup v2 controller ` + limit
		if n := strings.Count(f.log.String(), want); n != 1 {
			t.Errorf("%d lines have %q, want 1; the log is %s", n, want, f.log.String())
		}
	}
	if strings.Contains(f.log.String(), "limits.memory") || len(p.Isolation()) > 0 {
		t.Errorf("isolated by %v; the log is %s", p.Isolation(), f.log.String())
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Error(err)
	}

	f = newFixture(t, "good")
	f.spec.Limits, f.spec.Isolation.Mode, f.spec.Machine = cgroup.Limits{PIDs: 100}, isolation.Required, isolation.Detect(t.Context())
	if p, err := Start(t.Context(), f.spec); err == nil {
		_ = p.Kill(t.Context())
		t.Error("it has started without its limit")
	} else if want := "stages.test.limits.pids cannot be in force, and isolation is required: there is no cgroup v2 controller pids"; !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q", err, want)
	}
	// The host keeps that of memory.
	f = newFixture(t, "good")
	f.spec.Limits.Memory = 1 << 30
	f.start(t)
}

// The kernel ends a stage at its limit of memory, and the error says so.
func TestMemoryLimitOfTheKernel(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	f.spec.Cgroups, f.spec.Limits.Memory = cgroups(t), 128<<20
	for _, lack := range f.spec.Cgroups.Lacks(f.spec.Limits) {
		t.Skipf("no cgroup v2 controller %s is delegated here: %v", lack.Limit, lack.Err)
	}
	p := f.start(t)
	_ = configure(t.Context(), p, "hog")
	awaitDone(t, p)
	var exit *ExitError
	if !errors.As(p.Err(), &exit) || exit.Limit != cgroup.Memory {
		t.Fatalf("it has ended with %v", p.Err())
	}
}

// How a process ended at its limit of memory is said as when the host has killed it.
func TestReasonOfTheKernel(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "good").start(t)
	p.spec.Limits.Memory = 128 << 20
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	p.child.mu.Lock()
	p.child.memory = true // as the kernel counts
	p.child.mu.Unlock()
	want := "was killed by the kernel: its memory reached the limit of 128.0 MiB (stages.test.limits.memory)"
	if exit := p.exit(); exit.Limit != cgroup.Memory || exit.Reason() != want {
		t.Errorf("limit %q, reason %q, want %q", exit.Limit, exit.Reason(), want)
	}
}
