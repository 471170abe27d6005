package guard

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serveEnv makes the test binary serve a socket of that path, until its standard input ends.
const serveEnv = "CATENA_GUARD_TEST_SERVE"

func serveAt(path string) int {
	l, err := net.Listen("unix", path)
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "forged")
			c.Close()
		}
	}()
	_, _ = os.Stdout.WriteString("serves")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// impostor has a process of another user serve a socket in a directory of that user, which is returned.
func impostor(t *testing.T) (dir, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "guard") // t.TempDir is below a directory that others cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	giveAway(t, dir)
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	socket = filepath.Join(dir, "s.sock")
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles, cmd.Dir, cmd.Stderr = []*os.File{self}, "/", os.Stderr
	cmd.Env = append(os.Environ(), serveEnv+"="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	if _, err := io.ReadFull(stdout, make([]byte, len("serves"))); err != nil {
		t.Fatal(err)
	}
	return dir, socket
}

func dialRefused(t *testing.T, socket, dataDir, want string) {
	t.Helper()
	c, _, err := DialServer(t.Context(), socket, dataDir)
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want it to contain %q", err, want)
	}
}

// What another user has put where a server's socket would be is not used.
func TestDialServerBelievesNoOtherUser(t *testing.T) {
	t.Parallel()
	dir, socket := impostor(t)
	dialRefused(t, socket, "/no/such/directory", "directory "+dir+" belongs to user 65534, and not to root, to this user (0)")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	dialRefused(t, filepath.Join(link, "s.sock"), "", "directory "+link+" belongs to user 65534")

	// A directory that is ours, and that others could write to.
	if err := errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	dialRefused(t, socket, "", "run chmod 700 "+dir)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dialRefused(t, socket, "", "socket "+socket+" belongs to user 65534")
	if err := os.Chown(socket, 0, 0); err != nil {
		t.Fatal(err)
	}
	dialRefused(t, socket, "", "which listens at "+socket+", belongs to user 65534")
}

// A server belongs to the user who has its data directory.
func TestDialServerBelievesTheOwnerOfTheData(t *testing.T) {
	t.Parallel()
	_, socket := impostor(t)
	data := t.TempDir()
	giveAway(t, data)
	c, uid, err := DialServer(t.Context(), socket, data)
	if err != nil || uid != otherUser {
		t.Fatalf("user %d, error %v", uid, err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "forged" {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestDialServerOfThisUser(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(mkdir(t, 0o700, t.TempDir(), "run"), "s.sock")
	if _, _, err := DialServer(t.Context(), socket, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dialRefused(t, socket, "", "is not a socket")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	listen(t, socket)
	c, uid, err := DialServer(context.Background(), socket, "")
	if err != nil || uid != os.Geteuid() {
		t.Fatalf("user %d, error %v", uid, err)
	}
	c.Close()
}
