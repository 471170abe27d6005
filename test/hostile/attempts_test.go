package hostile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/sdk"
)

const secrets = "/api/v1/namespaces/default/secrets"

// attempt is one thing that the stage in Go tries within a request. The stage in Python has the same.
type attempt struct {
	name string
	// try returns what it got; nothing if it was prevented.
	try func(*attacker) string
}

// attacker makes the attempts in one request.
type attacker struct {
	order
	env     *sdk.Env
	request *http.Request
}

// served returns a response that is not a refusal.
func served(resp *http.Response, err error) string {
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return ""
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 100))
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// through returns what a handler of the SDK responds to the request for another path.
func (a *attacker) through(h http.Handler) string {
	again := a.request.Clone(a.request.Context())
	again.Method, again.URL.Path, again.Body, again.ContentLength = http.MethodGet, secrets, http.NoBody, 0
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, again)
	return served(rec.Result(), nil)
}

// forged are headers by which identity travels, to the host or from it.
func forged() http.Header {
	return http.Header{
		"X-Remote-User": {"system:apiserver"}, "X-Remote-Group": {"system:masters"},
		"X-Catena-User": {`{"name":"system:apiserver","groups":["system:masters"]}`}, "Impersonate-User": {"system:apiserver"},
	}
}

// ask sends a request to a socket, without the SDK, which would remove headers of the protocol.
func ask(ctx context.Context, socket, token, method, path, body string, header http.Header) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://catena"+path, strings.NewReader(body))
	if err != nil {
		return ""
	}
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	return served(transport.RoundTrip(r))
}

// get asks the host for the secrets.
func (a *attacker) get(header http.Header) string {
	return ask(a.request.Context(), a.env.Host().Socket, a.env.Host().Token, http.MethodGet, secrets, "", header)
}

func read(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if n, _ := f.Read(make([]byte, 100)); n == 0 {
		return ""
	}
	return "read " + filepath.Base(path)
}

func connect(network, address string) string {
	c, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	// Who is refused has connected all the same, and the connection ends.
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	return "connected"
}

// sockets are those of the host whose names begin so.
func (a *attacker) sockets(prefix string) []string {
	return slices.DeleteFunc(slices.Clone(a.Sockets), func(path string) bool {
		return !strings.HasPrefix(filepath.Base(path), prefix)
	})
}

func (a *attacker) reach(prefix string) string {
	for _, socket := range a.sockets(prefix) {
		if connect("unix", socket) != "" {
			return "connected to " + prefix
		}
	}
	return ""
}

func done(err error) string {
	if err != nil {
		return ""
	}
	return "done"
}

// trace attaches to a process, and lets it go.
func trace(pid int) string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if syscall.PtraceAttach(pid) != nil {
		return ""
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err == nil {
		_ = syscall.PtraceDetach(pid)
	}
	return "done"
}

// write writes a file and removes it.
func write(path string, size int) string {
	f, err := os.Create(path)
	if err != nil {
		return ""
	}
	defer os.Remove(path)
	defer f.Close()
	block := make([]byte, 1<<20)
	for range size / len(block) {
		if _, err := f.Write(block); err != nil {
			return ""
		}
	}
	if size == 0 {
		return "done"
	}
	return fmt.Sprintf("wrote %d MiB", size>>20)
}

func socket(family int) string {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	return done(unix.Close(fd))
}

// control calls fcntl on a file that is opened for it.
func control(path string, command, arg int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), command, arg)
	return done(err)
}

// files makes many files, which take memory of the kernel, and removes them.
func files(dir string, count int) string {
	if os.Mkdir(dir, 0o700) != nil {
		return ""
	}
	defer os.RemoveAll(dir)
	for i := range count {
		if os.Symlink("x", filepath.Join(dir, strconv.Itoa(i))) != nil {
			return ""
		}
	}
	return fmt.Sprintf("made %d files", count)
}

// The attempts of the first group are the host's to prevent, those of the second the kernel's.
var attempts = append(protocolAttempts, kernelAttempts...)

var protocolAttempts = []attempt{
	{"secrets through a delegate", func(a *attacker) string {
		for _, d := range a.env.Delegates() {
			if d.Name == "core" {
				return a.through(d.Handler)
			}
		}
		return "no delegate"
	}},
	{"secrets through the request of a user who may read them", func(a *attacker) string { return a.through(a.env.Call) }},
	{"secrets with its own client", func(a *attacker) string { return a.get(nil) }},
	{"secrets with forged headers", func(a *attacker) string {
		for key, values := range forged() {
			if got := a.get(http.Header{key: values}); got != "" {
				return got
			}
		}
		return a.get(forged())
	}},
	{"secrets from a sibling's data socket", func(a *attacker) string {
		for _, socket := range a.sockets("core") {
			if got := ask(a.request.Context(), socket, "", http.MethodGet, secrets, "", forged()); got != "" {
				return got
			}
		}
		return ""
	}},
	{"the host's socket without a token", func(a *attacker) string {
		for _, token := range []string{"", "token"} {
			if got := ask(a.request.Context(), a.env.Host().Socket, token, http.MethodGet, secrets, "", forged()); got != "" {
				return got
			}
		}
		return ""
	}},
	{claiming, func(a *attacker) string {
		a.env.SetClaims(sdk.Prefix("/hostile"), sdk.Prefix("/"), sdk.Prefix("/api"))
		return "" // the test sees who serves them
	}},
}

var kernelAttempts = []attempt{
	{"the key of the CA", func(a *attacker) string { return read(filepath.Join(a.DataDir, "pki", "ca.key")) }},
	{"files of the store", func(a *attacker) string { return read(filepath.Join(a.DataDir, "etcd", "member", "snap", "db")) }},
	{"etcd's socket", func(a *attacker) string { return a.reach("host.etcd") }},
	{"the admin socket", func(a *attacker) string { return a.reach("admin") }},
	{"a sibling's socket", func(a *attacker) string { return a.reach("core") }},
	{"paths of others' sockets, by a child", func(*attacker) string {
		const line = "cat /proc/$PPID/net/unix /proc/self/net/unix /proc/$PPID/task/*/net/unix"
		out, _ := exec.Command("/bin/sh", "-c", line).Output()
		if strings.Contains(string(out), "/core-") {
			return "found core's"
		}
		return ""
	}},
	{"a sibling's environment", func(a *attacker) string { return read(fmt.Sprintf("/proc/%d/environ", a.Victim)) }},
	{"a signal to a sibling", func(a *attacker) string { return done(syscall.Kill(a.Victim, 0)) }},
	{"tracing a sibling", func(a *attacker) string { return trace(a.Victim) }},
	{"the process group of a sibling", func(a *attacker) string {
		child, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true, Pgid: a.Victim}})
		if err == nil {
			_, err = child.Wait()
		}
		return done(err)
	}},
	{"a signal to the host", func(a *attacker) string { return done(syscall.Kill(a.HostPID, 0)) }},
	{"tracing the host", func(a *attacker) string { return trace(a.HostPID) }},
	{"the network", func(a *attacker) string { return cmp.Or(connect("tcp", a.Host), connect("udp", a.Host)) }},
	{"an abstract socket of another program", func(a *attacker) string { return connect("unix", a.Abstract) }},
	{"a socket of another program that is open to all", func(a *attacker) string { return connect("unix", a.Open) }},
	{"sockets of the hypervisor", func(*attacker) string { return socket(unix.AF_VSOCK) }},
	{"set-user-ID for its binary", func(*attacker) string {
		for _, path := range []string{"/proc/self/exe", "/proc/1/exe", "/proc/self/fd/5"} {
			if unix.Chmod(path, 0o4755) == nil {
				return done(unix.Chmod(path, 0o755))
			}
		}
		return done(unix.Fchmod(5, 0o4755))
	}},
	{"a file of its own that is set-user-ID", func(a *attacker) string {
		path := filepath.Join(a.env.DataDir(), "program")
		defer os.Remove(path)
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o4755)
		if err == nil {
			return done(unix.Close(fd))
		}
		return done(errors.Join(os.WriteFile(path, nil, 0o755), unix.Chmod(path, 0o6755)))
	}},
	{"the mode of the CA's key", func(a *attacker) string { return done(unix.Chmod(filepath.Join(a.DataDir, "pki", "ca.key"), 0o600)) }},
	{"the mode of /dev/null", func(*attacker) string { return done(unix.Chmod("/proc/self/fd/0", 0o666)) }},
	{"secrets beside the configuration", func(a *attacker) string { return read(a.Secret) }},
	{"what others execute", func(*attacker) string {
		if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC); err == nil {
			defer unix.Close(fd)
			if _, err := unix.InotifyAddWatch(fd, "/usr/bin", unix.IN_OPEN); err == nil {
				return "done"
			}
		}
		return control("/usr/bin", unix.F_NOTIFY, 1)
	}},
	{"a lease of a file of others", func(*attacker) string { return control("/proc/self/exe", unix.F_SETLEASE, unix.F_RDLCK) }},
	{"the host's limits", func(a *attacker) string {
		var now unix.Rlimit
		if err := unix.Prlimit(a.HostPID, unix.RLIMIT_CORE, nil, &now); err != nil {
			return ""
		}
		return done(unix.Prlimit(a.HostPID, unix.RLIMIT_CORE, &now, nil))
	}},
	{"the host's priority", func(a *attacker) string { return done(unix.Setpriority(unix.PRIO_PROCESS, a.HostPID, 0)) }},
	{"the names of other processes", func(a *attacker) string { return read(fmt.Sprintf("/proc/%d/cmdline", a.HostPID)) }},
	{"writing beside its binary", func(*attacker) string {
		self, err := os.Executable()
		if err != nil {
			return ""
		}
		return write(filepath.Join(filepath.Dir(self), "written"), 0)
	}},
	{"300 MiB in /tmp", func(*attacker) string { return write("/tmp/hostile", 300<<20) }},
	{"100,000 files in /tmp", func(*attacker) string { return files("/tmp/hostile-files", 100_000) }},
	{"contexts of asynchronous I/O, of which the machine has a number", func(*attacker) string {
		var context uintptr
		_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0)
		if errno == 0 {
			_, _, errno = unix.Syscall(unix.SYS_IO_DESTROY, context, 0, 0)
		}
		if errno != 0 {
			return ""
		}
		return "done"
	}},
	{"instances of inotify, of which a user has 128", func(*attacker) string {
		fd, err := unix.InotifyInit()
		if err != nil {
			return ""
		}
		return done(unix.Close(fd))
	}},
	{"a program of root that is given its memory, by a crash", func(*attacker) string {
		var now unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &now); err != nil || now.Max != 1 {
			return "done"
		}
		if unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) == nil {
			return "done"
		}
		return done(unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, nil))
	}},
	{"lines of the machine's audit, by a filter", func(*attacker) string {
		filtered := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends, and with it the filter
			filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
			program := unsafe.Pointer(&unix.SockFprog{Len: 1, Filter: &filter[0]})
			_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_LOG, uintptr(program))
			if errno == 0 {
				filtered <- nil
				return
			}
			filtered <- unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(program), 0, 0)
		}()
		return done(<-filtered)
	}},
	{"memory that is merged with that of others", func(*attacker) string {
		if err := unix.Prctl(unix.PR_SET_MEMORY_MERGE, 1, 0, 0, 0); err != nil {
			return ""
		}
		return done(unix.Prctl(unix.PR_SET_MEMORY_MERGE, 0, 0, 0, 0))
	}},
	{"writing what others have written", func(*attacker) string {
		f, err := os.Open(".")
		if err != nil {
			return ""
		}
		defer f.Close()
		return done(unix.Syncfs(int(f.Fd())))
	}},
	{"memory that no process has", func(*attacker) string {
		if fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC); err == nil {
			return done(unix.Close(fd))
		}
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, limit<<20, unix.IPC_CREAT|0o600)
		if err == nil {
			_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		return done(err)
	}},
}

// encode returns the text of an order.
func (o order) encode() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it holds nothing that could fail
	}
	return string(text)
}
