//go:build linux

package process

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/isolation"
)

const envTry = "PROCESS_TEST_TRY"

// attempts are what a stage tries, by name: each has what it is tried with.
type attempts map[string]string

// tryAll makes the attempts of the environment and returns, as JSON, what became of each.
func tryAll() string {
	var todo attempts
	if err := json.Unmarshal([]byte(os.Getenv(envTry)), &todo); err != nil {
		panic(err)
	}
	results := map[string]string{}
	for name, with := range todo {
		verb, _, _ := strings.Cut(name, " ")
		if err := try(verb, with); err != nil {
			results[name] = err.Error()
		} else {
			results[name] = "done"
		}
	}
	text, err := json.Marshal(results)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func try(verb, with string) error {
	pid, _ := strconv.Atoi(with)
	switch verb {
	case "read":
		_, err := os.ReadFile(with)
		return err
	case "replaced": // read it, once it has been replaced
		dir, path, _ := strings.Cut(with, ":")
		if err := os.WriteFile(filepath.Join(dir, "asks"), nil, 0o600); err != nil {
			return err
		}
		await(func() bool { return exists(filepath.Join(dir, "replaced")) })
		_, err := os.ReadFile(path)
		return err
	case "list":
		entries, err := os.ReadDir(with)
		if err == nil && len(entries) == 0 {
			return fmt.Errorf("%s is empty", with)
		}
		return err
	case "write":
		return os.WriteFile(with, []byte("x"), 0o600)
	case "append":
		f, err := os.OpenFile(with, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			err = f.Close()
		}
		return err
	case "connect":
		conn, err := net.Dial("unix", with)
		if err == nil {
			err = conn.Close()
		}
		return err
	case "dial":
		conn, err := net.Dial("tcp", with)
		if err == nil {
			err = conn.Close()
		}
		return err
	case "signal":
		return syscall.Kill(pid, 0)
	case "trace":
		runtime.LockOSThread() // the kernel knows the thread that attached as the tracer, and no other
		defer runtime.UnlockOSThread()
		if err := unix.PtraceAttach(pid); err != nil {
			return err
		}
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		return unix.PtraceDetach(pid)
	case "namespace": // a user namespace would give it capabilities
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{envMode + "=exit"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		if err := cmd.Start(); err != nil {
			return err
		}
		_ = cmd.Wait()
		return nil
	case "mount":
		return unix.Mount("none", with, "tmpfs", 0, "")
	case "chmod": // to what all can execute as its owner
		return unix.Chmod(with, 0o6755)
	case "open": // to others; it stays a program, which other attempts execute
		return unix.Chmod(with, 0o755)
	case "touch":
		return unix.Utimes(with, make([]unix.Timeval, 2))
	case "lease":
		f, err := os.Open(with)
		if err == nil {
			_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		}
		return err
	case "watch":
		fd, err := unix.InotifyInit1(0)
		if err == nil {
			_, err = unix.InotifyAddWatch(fd, with, unix.IN_ALL_EVENTS)
		}
		return err
	case "socket":
		_, err := unix.Socket(pid, unix.SOCK_DGRAM, 0)
		return err
	case "uid": // the host has the same one, as its connections are seen
		if os.Geteuid() == 0 {
			return fmt.Errorf("is root")
		}
		return nil
	}
	return fmt.Errorf("no attempt is named %s", verb)
}

// await waits for a condition, as long as that may take.
func await(f func() bool) {
	for end := time.Now().Add(patience); !f() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hostOrder is what a host is told that starts an isolated stage.
type hostOrder struct {
	Dir, Binary, DataDir string
	Spec                 isolation.Spec
	Sockets, Own, Hidden []string
	Mode                 string
	Try                  attempts
	// NoNamespaces leaves namespaces out, as a machine that forbids them.
	NoNamespaces bool
	// Users is a directory with the users of stages, or empty.
	Users string
}

// hostReport is what it prints.
type hostReport struct {
	Error   string
	PID     int
	Means   []string
	Version string
	Results map[string]string
}

// playIsolatingHost starts a stage as it is told, reports, and ends when its input does.
func playIsolatingHost() {
	var order hostOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		panic(err)
	}
	if err := isolation.HideMemory(); err != nil {
		panic(err)
	}
	todo, _ := json.Marshal(order.Try)
	ln, err := NewListener(order.Dir, "test")
	if err != nil {
		panic(err)
	}
	machine := isolation.Detect(context.Background())
	if order.NoNamespaces {
		machine.Namespaces = errors.New("forbidden by the test")
	}
	if order.Users != "" {
		if machine.Users, err = isolation.OpenUsers(order.Users); err != nil {
			panic(err)
		}
	}
	var report hostReport
	p, err := Start(context.Background(), Spec{
		Stage: "test", Binary: order.Binary, Listener: ln, RuntimeDir: order.Dir, StartTimeout: patience,
		Env:     map[string]string{envMode: order.Mode, envTry: string(todo), "GORACE": "atexit_sleep_ms=0"},
		Machine: machine,
		Isolation: isolation.Process{
			Spec: order.Spec, DataDir: order.DataDir, Sockets: order.Sockets, Own: order.Own, Hidden: order.Hidden,
		},
	})
	if err != nil {
		report.Error = err.Error()
	} else {
		report.PID, report.Means, report.Version = p.PID(), p.Isolation(), p.Description().GetVersion()
		if order.Mode == "tries" {
			if err := json.Unmarshal([]byte(p.Description().GetSummary()), &report.Results); err != nil {
				panic(err)
			}
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if p != nil {
		_ = p.Kill(context.Background())
	}
	_ = ln.Close()
}

// isolationFixture has what a stage may and may not reach.
type isolationFixture struct {
	order hostOrder
	uid   int
	end   func() // of the host, by SIGKILL
}

// ordinary is a user of the machine who is neither root nor one of the stages'.
const ordinary = 65533

func newIsolationFixture(t *testing.T, uid int) *isolationFixture {
	t.Helper()
	if os.Geteuid() != 0 && uid != os.Geteuid() {
		t.Skip("only root can become another user")
	}
	base, err := os.MkdirTemp("", "catena")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	f := &isolationFixture{uid: uid}
	data := filepath.Join(base, "data")
	f.order = hostOrder{
		Dir: filepath.Join(data, "run"), Binary: filepath.Join(base, "plugins", "catena-stage-test"), DataDir: filepath.Join(data, "stages", "test"),
		Own: []string{data}, Sockets: []string{filepath.Join(data, "run", "host.sock")}, Mode: "tries",
	}
	other := filepath.Join(data, "stages", "other", "files")
	for _, dir := range []string{f.order.Dir, filepath.Dir(f.order.Binary), f.order.DataDir, other} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.order.Binary, self, 0o755)
	write(t, filepath.Join(data, "secret"), []byte("key"), 0o600)
	private := filepath.Join(filepath.Dir(f.order.Binary), "private")
	if err := os.Mkdir(private, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(private, "secret"), []byte("key"), 0o644)
	f.order.Hidden = append(f.order.Hidden, private)
	write(t, filepath.Join(base, "granted"), []byte("file"), 0o644)
	write(t, filepath.Join(f.order.DataDir, "kept"), []byte("file"), 0o600)
	for _, path := range []string{filepath.Join(f.order.Dir, "host.sock"), filepath.Join(f.order.Dir, "admin.sock")} {
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
	}
	err = filepath.WalkDir(base, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// run starts the host, which starts the stage, and returns its report.
func (f *isolationFixture) run(t *testing.T) hostReport {
	t.Helper()
	host := exec.Command(f.order.Binary)
	host.Env = append(os.Environ(), envMode+"=isolating-host")
	host.Dir = "/"
	host.Stderr = os.Stderr
	if f.uid != os.Geteuid() {
		host.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(f.uid), Gid: uint32(f.uid)}}
	}
	in, err := host.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	f.end = func() {
		_ = host.Process.Kill()
		_ = host.Wait()
	}
	t.Cleanup(f.end)
	if err := json.NewEncoder(in).Encode(f.order); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var report hostReport
	if err == nil {
		err = json.Unmarshal([]byte(line), &report)
	}
	if err != nil {
		t.Fatalf("the host reports %q: %v", line, err)
	}
	return report
}

// oomScore is what is added to the score by which the kernel chooses what to end for want of memory.
func oomScore(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Fatal(err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return score
}

// bystander starts a process of the user that a stage could disturb.
func bystander(t *testing.T, uid int) int {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "3600")
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// users are those that a host runs as in these tests.
func users() map[string]int { return map[string]int{"root": 0, "ordinary user": ordinary} }

// What a stage was not granted is out of reach, and it is the isolation that keeps it there.
func TestIsolatedStage(t *testing.T) {
	t.Parallel()
	for name, uid := range users() {
		for _, mode := range []isolation.Mode{isolation.Required, isolation.Off} {
			t.Run(fmt.Sprintf("%s/%d", name, mode), func(t *testing.T) {
				t.Parallel()
				f := newIsolationFixture(t, uid)
				server, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				pid := strconv.Itoa(bystander(t, uid))
				data := filepath.Dir(f.order.Dir)
				denied := attempts{
					"read secret":     filepath.Join(data, "secret"),
					"read hidden":     filepath.Join(filepath.Dir(f.order.Binary), "private", "secret"),
					"list data":       filepath.Join(data, "stages", "other"),
					"connect admin":   filepath.Join(f.order.Dir, "admin.sock"),
					"signal process":  pid,
					"trace process":   pid,
					"list process":    filepath.Join("/proc", pid),
					"read memory":     filepath.Join("/proc", pid, "environ"),
					"dial loopback":   server.Addr().String(),
					"namespace user":  "",
					"write binary":    filepath.Join(filepath.Dir(f.order.Binary), "new"),
					"chmod exe":       "/proc/self/exe",
					"chmod inherited": "/proc/self/fd/5",
					"open exe":        "/proc/self/exe",
					"watch usr":       "/usr/bin",
					"list etc":        "/etc/init.d",
				}
				allowed := attempts{
					"list own":     filepath.Dir(f.order.Binary),
					"write own":    filepath.Join(f.order.DataDir, "mine"),
					"write tmp":    "/tmp/" + filepath.Base(filepath.Dir(data)) + "-file",
					"connect host": filepath.Join(f.order.Dir, "host.sock"),
					"list certs":   "/etc/ssl/certs",
					"open own":     filepath.Join(f.order.DataDir, "kept"),
					"list self":    "/proc/self",
					"append null":  "/dev/null",
					"read zones":   "/etc/passwd",
					"append error": "/dev/stderr",
				}
				f.order.Spec = isolation.Spec{Mode: mode}
				f.order.Try = attempts{}
				for _, list := range []attempts{denied, allowed} {
					for name, with := range list {
						f.order.Try[name] = with
					}
				}
				report := f.run(t)
				if report.Error != "" {
					t.Fatal(report.Error)
				}
				defer os.Remove(allowed["write tmp"])
				if own, of := oomScore(t, os.Getpid()), oomScore(t, report.PID); of != min(own+otherScore, maxScore) {
					t.Errorf("the stage has the score %d where the host has %d: the kernel may end the host first", of, own)
				}
				for name := range denied {
					if got := report.Results[name]; (got == "done") != (mode == isolation.Off) {
						t.Errorf("%s: %s", name, got)
					}
				}
				for name := range allowed {
					if got := report.Results[name]; got != "done" {
						t.Errorf("%s: %s", name, got)
					}
				}
				want := []string{"userns", "mnt", "pid", "net", "seccomp", "nnp"}
				if uid == 0 {
					want = append(want, "uid")
				}
				for _, means := range want {
					if slices.Contains(report.Means, means) != (mode != isolation.Off) {
						t.Errorf("%s in %v", means, report.Means)
					}
				}
			})
		}
	}
}

// A file that is hidden stays hidden when another is renamed to its name, and so does one that was not there.
func TestHiddenFileIsReplaced(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tokens.csv", "link.csv", "later.csv"} {
		for _, noNamespaces := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, noNamespaces), func(t *testing.T) {
				t.Parallel()
				f := newIsolationFixture(t, os.Geteuid())
				dir := filepath.Dir(f.order.Binary)
				path := filepath.Join(dir, name)
				switch name {
				case "tokens.csv":
					write(t, path, []byte("one"), 0o644)
				case "link.csv":
					if err := os.Symlink("private/secret", path); err != nil {
						t.Fatal(err)
					}
				}
				f.order.Hidden = append(f.order.Hidden, path)
				f.order.NoNamespaces, f.order.Spec.Mode = noNamespaces, isolation.Auto
				f.order.Try = attempts{"replaced": f.order.DataDir + ":" + path, "list own": dir}
				if noNamespaces {
					delete(f.order.Try, "list own")
				}
				go func() {
					await(func() bool { return exists(filepath.Join(f.order.DataDir, "asks")) })
					other := filepath.Join(filepath.Dir(dir), "new")
					err := os.WriteFile(other, []byte("two"), 0o644)
					if err = errors.Join(err, os.Rename(other, path), os.WriteFile(filepath.Join(f.order.DataDir, "replaced"), nil, 0o644)); err != nil {
						t.Error(err)
					}
				}()
				report := f.run(t)
				if report.Error != "" {
					t.Fatal(report.Error)
				}
				if got := report.Results["replaced"]; got == "done" || got == "" {
					t.Errorf("the stage has read the file that replaced %s: %q", name, got)
				}
				if got, listed := report.Results["list own"]; listed && got != "done" {
					t.Errorf("what is beside it: %s", got)
				}
			})
		}
	}
}

// Where namespaces are forbidden, Landlock and the filter keep most out of reach, and nothing else
// is claimed.
func TestIsolatedStageWithoutNamespaces(t *testing.T) {
	t.Parallel()
	if m := isolation.Detect(t.Context()); m.Landlock < 6 {
		t.Skipf("the kernel has version %d of Landlock", m.Landlock)
	}
	for name, uid := range users() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newIsolationFixture(t, uid)
			server, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			pid := strconv.Itoa(bystander(t, uid))
			f.order.NoNamespaces = true
			f.order.Spec.Mode = isolation.Auto
			denied := attempts{
				"read secret":    filepath.Join(filepath.Dir(f.order.Dir), "secret"),
				"read hidden":    filepath.Join(filepath.Dir(f.order.Binary), "private", "secret"),
				"signal process": pid,
				"trace process":  pid,
				"read memory":    filepath.Join("/proc", pid, "environ"),
				"dial loopback":  server.Addr().String(),
				"namespace user": "",
				"chmod exe":      "/proc/self/exe",
				"open secret":    filepath.Join(filepath.Dir(f.order.Dir), "secret"),
				"open null":      "/dev/null",
				"touch secret":   filepath.Join(filepath.Dir(f.order.Dir), "secret"),
				"lease binary":   "/proc/self/exe",
				"watch usr":      "/usr/bin",
				"socket inet":    strconv.Itoa(unix.AF_INET),
				"socket vsock":   strconv.Itoa(unix.AF_VSOCK),
				"list etc":       "/etc/init.d",
			}
			f.order.Try = attempts{
				"write own":    filepath.Join(f.order.DataDir, "mine"),
				"connect host": filepath.Join(f.order.Dir, "host.sock"),
				"list certs":   "/etc/ssl/certs",
				"append null":  "/dev/null",
			}
			if uid == 0 {
				denied["connect admin"] = filepath.Join(f.order.Dir, "admin.sock")
			}
			for name, with := range denied {
				f.order.Try[name] = with
			}
			report := f.run(t)
			if report.Error != "" {
				t.Fatal(report.Error)
			}
			for name, got := range report.Results {
				if _, want := denied[name]; want == (got == "done") {
					t.Errorf("%s: %s", name, got)
				}
			}
			if slices.Contains(report.Means, "uid") != (uid == 0) {
				t.Errorf("as user %d, it is isolated by %v", uid, report.Means)
			}
			for _, means := range report.Means {
				if slices.Contains([]string{"userns", "mnt", "pid", "ipc", "uts", "net"}, means) {
					t.Errorf("%s is reported, of %v", means, report.Means)
				}
			}
		})
	}
}

// Files and network are in reach once they are granted.
func TestIsolatedStageWithGrants(t *testing.T) {
	t.Parallel()
	for name, uid := range users() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newIsolationFixture(t, uid)
			server, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			base := filepath.Dir(filepath.Dir(f.order.Dir))
			dir := filepath.Join(base, "writable")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			f.order.Spec = isolation.Spec{Mode: isolation.Required, Network: true, Files: []string{filepath.Join(base, "granted"), dir + ":rw"}}
			f.order.Try = attempts{
				"read granted":   filepath.Join(base, "granted"),
				"append granted": filepath.Join(base, "granted"),
				"write dir":      filepath.Join(dir, "new"),
				"dial loopback":  server.Addr().String(),
			}
			report := f.run(t)
			for name, done := range map[string]bool{"read granted": true, "append granted": false, "write dir": true, "dial loopback": true} {
				if got := report.Results[name]; (got == "done") != done {
					t.Errorf("%s: %q (%s)", name, got, report.Error)
				}
			}
		})
	}
}

// What an isolated stage has started, in a session of its own, ends with its host.
func TestIsolatedStageLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, uid := range users() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newIsolationFixture(t, uid)
			f.order.Mode = "daemon"
			f.order.Spec = isolation.Spec{Mode: isolation.Auto}
			report := f.run(t)
			if report.Error != "" {
				t.Fatal(report.Error)
			}
			pids := childrenOf(t, report.PID)
			if len(pids) == 0 {
				t.Fatal("the stage has no child")
			}
			f.end()
			for _, pid := range append(pids, report.PID) {
				eventually(t, "the process ends with the host", func() bool { return !alive(pid) })
			}
		})
	}
}

// childrenOf returns the processes that a process has started.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// A process of a stage is never root's: a binary that other users cannot execute is not started.
func TestIsolatedStageOfPrivateBinary(t *testing.T) {
	t.Parallel()
	for _, mode := range []isolation.Mode{isolation.Auto, isolation.Required} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			t.Parallel()
			f := newIsolationFixture(t, 0)
			if err := os.Chmod(f.order.Binary, 0o700); err != nil {
				t.Fatal(err)
			}
			f.order.Spec.Mode = mode
			report := f.run(t)
			for _, want := range []string{f.order.Binary + " has mode 0700", "run chmod o+rx " + f.order.Binary, "stages.test.isolation"} {
				if !strings.Contains(report.Error, want) {
					t.Errorf("error %q, want %q", report.Error, want)
				}
			}
		})
	}
}

// An access control list is as good as rights for all.
func TestIsolatedStageOfListedBinary(t *testing.T) {
	t.Parallel()
	f := newIsolationFixture(t, 0)
	dir := t.TempDir()
	f.order.Users = dir
	users, err := isolation.OpenUsers(dir)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := users.Of("test")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.order.Binary, 0o700); err != nil {
		t.Fatal(err)
	}
	// Version 2; owner rwx, the user r-x, group ---, mask r-x, others ---.
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{1, 7, ^uint32(0)}, {2, 5, uint32(uid)}, {4, 0, ^uint32(0)}, {16, 5, ^uint32(0)}, {32, 0, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint16(list, uint16(e[0]))
		list = binary.LittleEndian.AppendUint16(list, uint16(e[1]))
		list = binary.LittleEndian.AppendUint32(list, e[2])
	}
	if err := unix.Setxattr(f.order.Binary, "system.posix_acl_access", list, 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system has no access control lists")
	} else if err != nil {
		t.Fatal(err)
	}
	f.order.Spec.Mode = isolation.Required
	if report := f.run(t); report.Error != "" || !slices.Contains(report.Means, "uid") {
		t.Errorf("error %q, isolated by %v", report.Error, report.Means)
	}
}
