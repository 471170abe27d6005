package system

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// Without its plugin directory a server goes on, as long as no process has to be started;
// when the directory is back, so is everything.
func TestDeletedPluginFolder(t *testing.T) {
	t.Parallel()
	s := startLiveSite(t, "1m")
	if err := os.Rename(s.plugins, s.plugins+".gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Command(t.Context(), "swap", "hello"); err == nil || !strings.Contains(err.Error(), s.plugins) {
		t.Errorf("swap: %v", err)
	}
	if _, err := s.Command(t.Context(), "reload"); err == nil || !strings.Contains(err.Error(), s.plugins) {
		t.Errorf("reload: %v", err)
	}
	if got := s.greeting(t); got != "good day" {
		t.Errorf("the greeting is %q", got)
	}

	if err := syscall.Kill(s.Stages()["hello"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	admin := s.Config(cluster.Admin)
	eventually(t, "requests for the stage are refused", func() bool {
		a := do(t, admin, http.MethodGet, "/stage/hello", "")
		return a.code == http.StatusServiceUnavailable && strings.Contains(a.body, `\"hello\"`)
	})
	if a := do(t, admin, http.MethodGet, "/readyz?verbose", ""); a.code == 200 || !strings.Contains(a.body, "hello") {
		t.Errorf("/readyz: %d\n%s", a.code, a.body)
	}
	if err := os.Rename(s.plugins+".gone", s.plugins); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage is back", func() bool { return do(t, admin, http.MethodGet, "/stage/hello", "").code == 200 })
}

// A host that cannot write its log serves, changes and ends as any other.
func TestLogThatIsFull(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd := catenaCommand(t, s.args()...)
	cmd.Stdout, cmd.Stderr = full, full
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	eventually(t, "hello can be swapped", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the host has ended: %v", err)
		default:
		}
		return runCatena(t, "swap", "hello", "--data-dir", s.data).code == 0
	}, func() string { return runCatena(t, "status", "--data-dir", s.data).stderr })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatalf("not ended within %s of the signal", patience)
	}
	s.nothingLeft(t)
}

// Whatever is killed, nothing is left in the directory for temporary files, and no socket
// but those of the processes that run.
func TestNothingLeftByTheKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	temporary := t.TempDir()
	cmd := catenaCommand(t, s.args()...)
	cmd.Env = append(cmd.Env, "TMPDIR="+temporary)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	stage := func() int {
		for pid, name := range cluster.Children(cmd.Process.Pid) {
			if name == "catena-stage-hello" {
				return pid
			}
		}
		return 0
	}
	serving := func() bool {
		r := runCatena(t, "status", "--data-dir", s.data)
		return r.code == 0 && strings.Contains(r.stdout, "serving")
	}
	eventually(t, "hello serves", serving)
	sockets := len(socketsBelow(s.data))

	killed := stage()
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "hello serves again", func() bool { return stage() != 0 && stage() != killed && serving() })
	eventually(t, "the sockets of the killed stage are gone", func() bool { return len(socketsBelow(s.data)) <= sockets },
		func() string { return strings.Join(socketsBelow(s.data), "\n") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage has ended with its host", func() bool { return len(processesOf(s.data)) == 0 })
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR: %q %v", left, err)
	}
	s.works(t, s.args()...)
	s.nothingLeft(t)
}
