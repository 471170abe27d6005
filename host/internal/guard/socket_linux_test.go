package guard

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// callEnv makes the test binary connect to the socket of that path and print what it
// is sent, instead of running the tests.
const callEnv = "CATENA_GUARD_TEST_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(callEnv); path != "" {
		os.Exit(call(path))
	}
	if path := os.Getenv(serveEnv); path != "" {
		os.Exit(serveAt(path))
	}
	os.Exit(m.Run())
}

func call(path string) int {
	c, err := net.Dial("unix", path)
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	_, _ = io.Copy(os.Stdout, c)
	return 0
}

// listen opens a socket that sends a line on every accepted connection.
func listen(t *testing.T, path string) {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "welcome")
			c.Close()
		}
	}()
}

// callAs calls the socket from a process of that user.
func callAs(t *testing.T, uid uint32, path string) (line, problem string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The test binary is in a directory that other users cannot enter.
	fd, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	var stdout, stderr strings.Builder
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles, cmd.Dir = []*os.File{fd}, "/"
	cmd.Env = append(os.Environ(), callEnv+"="+path)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if int(uid) != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot run a process of user %d: %v", uid, err)
	}
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
	return stdout.String(), stderr.String()
}

func TestSocketIsForThisUser(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.sock")
	listen(t, path)
	if got := modeOf(t, path); got != 0o600 {
		t.Errorf("mode is %o", got)
	}
	if line, problem := callAs(t, uint32(os.Geteuid()), path); line != "welcome" {
		t.Errorf("this user gets %q, error %q", line, problem)
	}
}

func TestSocketRefusesOtherUsers(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "guard")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // or they would not come so far
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s.sock")
	listen(t, path)
	if line, problem := callAs(t, otherUser, path); line != "" || !strings.Contains(problem, "permission denied") {
		t.Errorf("by the mode: another user gets %q, error %q", line, problem)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if line, problem := callAs(t, otherUser, path); line != "" || problem != "" {
		t.Errorf("by who calls: another user gets %q, error %q; want the connection to end", line, problem)
	}
	if line, problem := callAs(t, uint32(os.Geteuid()), path); line != "welcome" {
		t.Errorf("this user, after that, gets %q, error %q", line, problem)
	}
}

// What a stage puts in the place of its socket, a link to another or a file, is not connected to.
func TestDialFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, link, file := filepath.Join(dir, "socket"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	listen(t, socket)
	if err := errors.Join(os.Symlink(socket, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for path, want := range map[string]string{
		link: "is not a socket", file: "is not a socket", filepath.Join(dir, "none"): "no such file",
	} {
		if _, err := Dial(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
