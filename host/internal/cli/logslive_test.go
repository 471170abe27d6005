package cli

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLogsOfARunningHost(t *testing.T) {
	t.Parallel()
	l := newLife(t, "one", "two")
	l.chain(t, "", "one", "two")
	l.start(t)
	l.untilSignal(t, "HasBeenReady")

	logs := func(args ...string) string {
		t.Helper()
		out, err := l.command(t, append([]string{"logs"}, args...)...)
		if err != nil {
			t.Fatalf("logs %q: %v", args, err)
		}
		return out
	}
	host, all := logs("host"), logs()
	if !strings.Contains(host, `"@message":"serving"`) || strings.Contains(host, `"@module":"catena.one"`) {
		t.Errorf("lines of the host:\n%s", host)
	}
	if !strings.Contains(all, `"@message":"serving"`) || !strings.Contains(all, `"@module":"catena.one"`) {
		t.Errorf("all lines:\n%s", all)
	}
	if one := logs("one"); one == "" || strings.Contains(one, `"@module":"catena"`) || strings.Contains(one, `"@module":"catena.two"`) {
		t.Errorf("lines of a stage:\n%s", one)
	}
	if out := logs("--tail", "2"); strings.Count(out, "\n") != 2 {
		t.Errorf("two lines:\n%s", out)
	}
	if out := logs("--level", "error", "host"); strings.Contains(out, `"@level":"info"`) {
		t.Errorf("lines of level error:\n%s", out)
	}
	if out := logs("--since", "1ns"); out != "" {
		t.Errorf("lines of the last nanosecond:\n%s", out)
	}
	for _, c := range []struct{ arg, want string }{{"thre", "there is no log of"}, {"--level=loud", "there is no log level"}, {"--tail=-2", "--tail -2"}} {
		if _, err := l.command(t, "logs", c.arg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("logs %s: %v", c.arg, err)
		}
	}

	follower := exec.Command(os.Args[0], "logs", "-f", "--tail", "0", "host", "--data-dir", filepath.Join(l.dir, "data"))
	follower.Env = append(os.Environ(), envCommand+"=1")
	stdout, err := follower.StdoutPipe()
	if err == nil {
		err = follower.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()

	level := func(args ...string) string {
		t.Helper()
		out, err := l.command(t, append([]string{"logs", "level"}, args...)...)
		if err != nil {
			t.Fatalf("logs level %q: %v", args, err)
		}
		return strings.Join(strings.Fields(out), " ")
	}
	if got, want := level(), "NAME LEVEL host info one debug two debug"; got != want {
		t.Errorf("levels are %q, want %q", got, want)
	}
	l.until(t, "line for the follower", func() bool {
		level("host", "debug")
		select {
		case line := <-lines:
			return strings.Contains(line, "log level changed")
		default:
			return false
		}
	})
	level("one", "error")
	if got, want := level(), "NAME LEVEL host debug one error two debug"; got != want {
		t.Errorf("levels are %q, want %q", got, want)
	}
	if _, err := l.command(t, "reload"); err != nil {
		t.Fatal(err)
	}
	if got, want := level(), "NAME LEVEL host info one debug two debug"; got != want {
		t.Errorf("after a reload, levels are %q, want %q", got, want)
	}
	if _, err := l.command(t, "logs", "level", "one", "loud"); err == nil || !strings.Contains(err.Error(), "there is no log level") {
		t.Errorf("a level that is none: %v", err)
	}

	// The end of the host is the end of what follows it, without an error.
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range lines { // until the end
	}
	if err := follower.Wait(); err != nil {
		t.Errorf("the follower: %v", err)
	}
}
