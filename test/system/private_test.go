package system

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// otherUser is a user of the machine who is neither root nor the one of the tests.
const otherUser = 65534

// asOtherUser runs bin/catena as another user, in a directory that everybody can enter.
func asOtherUser(t *testing.T, dir string, args ...string) run {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Open(filepath.Join(bin, "catena")) // which may lie where others cannot go
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	cmd := exec.Command("/proc/self/fd/3", args...)
	cmd.ExtraFiles, cmd.Dir, cmd.Env = []*os.File{binary}, dir, cluster.Environ()
	cmd.SysProcAttr = cluster.Attributes()
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: otherUser, Gid: otherUser}
	return runCommand(t, cmd)
}

// sharedDir is a directory that everybody can enter.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "system")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// isClosed checks that no other user can enter a directory or read a file. Sockets are protected by
// the mode of their directories alone: stages with users of their own connect to some of them.
func (s *site) isClosed(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	err := filepath.WalkDir(s.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen[d.Name()] = true
		if info.Mode().Perm()&0o077 != 0 && info.Mode()&(fs.ModeSymlink|fs.ModeSocket) == 0 {
			t.Errorf("%s is open to others: %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"ca.key", "admin.kubeconfig", "admin.sock"} {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
	socketIn(t, filepath.Join(s.data, "run"), "hello-*.host.sock")
	socketIn(t, filepath.Join(s.data, "run"), "host.etcd-*.sock")
}

// socketIn returns the path of a socket, of which nobody can guess the name.
func socketIn(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, dir, found, err)
	}
	return found[0]
}

// The secure port is the only way in: no other port, no abstract socket, no socket in a directory that others can enter, and
// no file, though the data directory was open before.
func TestOnlyTheSecurePortIsOpen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := os.Mkdir(s.data, 0o755); err != nil {
		t.Fatal(err)
	}
	h := s.start(t, s.args()...)
	h.awaitReady(t)
	s.isClosed(t)
	if !strings.Contains(h.log(), "the data directory was open to other users") {
		t.Errorf("nothing is said about the open data directory:\n%s", h.log())
	}
	processes := processesOf(s.data)
	if len(processes) != 2 {
		t.Fatalf("processes are %v, want the host and its stage", processes)
	}
	ports, paths := 0, 0
	for pid := range processes {
		sockets := socketsOf(pid)
		if len(sockets) == 0 {
			t.Errorf("process %d has no sockets at all", pid)
		}
		for _, kind := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "packet"} {
			for _, fields := range table(t, pid, kind) {
				const listening = "0A"
				open := !strings.HasPrefix(kind, "tcp") || fields[3] == listening
				if !open || !sockets[fields[inodeColumn(kind, fields)]] {
					continue
				}
				if ports++; pid != h.PID() || !strings.HasPrefix(kind, "tcp") {
					t.Errorf("process %d (%s) has a socket of kind %s: %v", pid, processes[pid], kind, fields)
				}
			}
		}
		for _, fields := range table(t, pid, "unix") {
			if len(fields) < 8 || !sockets[fields[6]] {
				continue // it has no name
			}
			if strings.HasPrefix(fields[7], "@") {
				t.Errorf("process %d has the abstract socket %s", pid, fields[7])
				continue
			}
			paths++
			if info, err := os.Stat(filepath.Dir(fields[7])); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the directory of %s is open: %v, %v", fields[7], info, err)
			}
		}
	}
	if ports != 1 || paths < 4 {
		t.Errorf("%d ports and %d sockets with a path are open, want one port and the sockets of host, commands, etcd and stage", ports, paths)
	}
	h.stop(t)
}

// table is a table of /proc/PID/net, without its head.
func table(t *testing.T, pid int, kind string) [][]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, kind))
	if os.IsNotExist(err) {
		return nil // a machine without it, such as IPv6
	}
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if i > 0 {
			rows = append(rows, strings.Fields(line))
		}
	}
	return rows
}

func inodeColumn(kind string, fields []string) int {
	if kind == "packet" {
		return len(fields) - 1
	}
	return 9
}

// socketsOf are the inodes of the sockets that a process has open.
func socketsOf(pid int) map[string]bool {
	inodes := map[string]bool{}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		target, _ := os.Readlink(link)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

// Another user cannot give commands to a host, even where its directories are open again.
func TestCommandsOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	s := newSite(t)
	s.data = filepath.Join(dir, "data")
	h := s.start(t, s.args()...)
	h.awaitReady(t)
	status := []string{"status", "--data-dir", s.data}
	if r := runCatena(t, status...); r.code != 0 || !strings.Contains(r.stdout, "hello") {
		t.Errorf("this user: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	refused := func(why, want string) {
		t.Helper()
		if r := asOtherUser(t, dir, status...); r.code == 0 || strings.Contains(r.stdout, "hello") || !strings.Contains(r.stderr, want) {
			t.Errorf("another user, by %s: exit code %d\n%s%s", why, r.code, r.stdout, r.stderr)
		}
	}
	refused("the directory", "permission denied")
	run := filepath.Join(s.data, "run")
	if err := errorsOf(os.Chmod(s.data, 0o755), os.Chmod(run, 0o755)); err != nil {
		t.Fatal(err)
	}
	refused("the socket's mode", "permission denied")
	if err := os.Chmod(filepath.Join(run, "admin.sock"), 0o666); err != nil {
		t.Fatal(err)
	}
	refused("who calls", "catena: ")
	h.stop(t)
}

// A configuration without the right to read it is named, as one that is not there is.
func TestUnreadableForThisUser(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	path := filepath.Join(dir, "catena.yaml")
	if err := os.WriteFile(path, []byte("kind: HostConfiguration\n"), 0o200); err != nil {
		t.Fatal(err)
	}
	want := path + ": permission denied"
	validate, serve := []string{"config", "validate", "--config", path}, []string{"serve", "--config", path, "--data-dir", filepath.Join(dir, "data")}
	for _, args := range [][]string{validate, serve} {
		r := run{}
		if os.Geteuid() == 0 {
			r = asOtherUser(t, dir, args...)
		} else {
			r = runCatena(t, args...)
		}
		if r.code != 1 || strings.TrimPrefix(strings.TrimSpace(r.stderr), "catena: ") != want {
			t.Errorf("%s: exit code %d, standard error %q, want 1 and %q", args[0], r.code, r.stderr, want)
		}
	}
}

// A data directory of another user is named with its owner, before anything in it is missed.
func TestDataDirOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := asOtherUser(t, dir, "serve", "--secure-port", "0")
	const want = "catena: default: dataDir: ./data belongs to root, and this is nobody, who may not read it: run it as root, " +
		"or name another data directory\n"
	if r.code != 1 || !strings.HasSuffix(r.stderr, want) {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
}
