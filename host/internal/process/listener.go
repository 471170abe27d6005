package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// maxSocketPath is the longest path of a Unix socket that every system here takes.
const maxSocketPath = 107

// go-plugin makes a folder in the runtime folder for each process, and the process
// the socket of the control plane in it: /plugin-dirNNNNNNNNNN/pluginNNNNNNNNNN.
const (
	controlDirPrefix  = "plugin-dir"
	controlSocketRoom = 1 + len(controlDirPrefix) + 10 + len("/plugin") + 10
)

// PrepareRuntimeDir creates the folder for sockets, or checks that an existing one
// belongs to this user, closes it to everybody else, and checks that the sockets of
// the given stages fit into the length that the kernel allows. Sockets and folders
// that an earlier host has left there are removed: call it once, first, and while
// holding the lock of the data folder.
func PrepareRuntimeDir(dir string, stages []string) error {
	err := checkSocketRoom(dir, stages)
	if err == nil {
		err = makePrivate(dir)
	}
	if err == nil {
		err = removeLeftovers(dir)
	}
	if err != nil {
		return fmt.Errorf("runtime folder %s: %w", dir, err)
	}
	return nil
}

// checkSocketRoom checks the lengths of the control sockets, which have all the
// same, and of the data sockets.
func checkSocketRoom(dir string, stages []string) error {
	need := controlSocketRoom
	for _, stage := range stages {
		need = max(need, len(socketPath("", stage, "00000000"))+1)
	}
	if len(dir)+need <= maxSocketPath {
		return nil
	}
	return fmt.Errorf("its path has %d bytes, which leaves too little of the %d that the path of a Unix socket can have; set runtimeDir to a folder with at most %d",
		len(dir), maxSocketPath, max(0, maxSocketPath-need))
}

func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("is a link, it must be a folder")
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, it must belong to the user that runs catena (%d)", stat.Uid, os.Geteuid())
	}
	return os.Chmod(dir, 0o700)
}

func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 || e.IsDir() && strings.HasPrefix(e.Name(), controlDirPrefix) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func socketPath(dir, stage, generation string) string {
	return filepath.Join(dir, stage+"-"+generation+".sock")
}

// Listener is the listening Unix socket on which a stage serves requests. The host
// owns it, so that it outlives a process of the stage: connections that arrive while
// no process runs wait in it for the next one.
type Listener struct {
	ln      *net.UnixListener
	path    string
	refusal string
}

// NewListener opens the socket STAGE-GENERATION.sock in dir, which has to keep other
// users out. Close removes it.
func NewListener(dir, stage, generation string) (*Listener, error) {
	path := socketPath(dir, stage, generation)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("stage %q: the path of its socket, %s, would have %d bytes, %d are possible; set runtimeDir to a folder with a shorter path",
			stage, path, len(path), maxSocketPath)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("stage %q: data socket: %w", stage, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("stage %q: data socket: %w", stage, errors.Join(err, ln.Close()))
	}
	return &Listener{ln: ln, path: path, refusal: rand.Text()}, nil
}

// Path is where the host connects to.
func (l *Listener) Path() string { return l.path }

// Refusal is the value of HeaderUndelivered in the answers of Refuse. No stage knows it,
// so that none can pretend that it has not executed a request.
func (l *Listener) Refusal() string { return l.refusal }

// Close removes the socket. A process that has inherited it no longer gets connections.
func (l *Listener) Close() error {
	if l.ln == nil { // an attached process has it
		return nil
	}
	return l.ln.Close()
}

// file returns a descriptor for a child to inherit. It is not net's File, which
// would make the socket blocking, for every process that shares it.
func (l *Listener) file() (*os.File, error) {
	raw, err := l.ln.SyscallConn()
	if err != nil {
		return nil, err
	}
	var dup int
	var dupErr error
	if err := raw.Control(func(fd uintptr) {
		dup, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, os.NewSyscallError("fcntl", dupErr)
	}
	return os.NewFile(uintptr(dup), l.path), nil
}

// undelivered is what a connection gets that no process of the stage has accepted: the
// request that may wait in it has provably not been executed.
const undelivered = "HTTP/1.1 503 Service Unavailable\r\n" + stagev1.HeaderUndelivered + ": %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

const (
	// refuseGrace is the time that a connection which is just being made has, and
	// refuseTime that in which what waits is sent back.
	refuseGrace = 5 * time.Millisecond
	refuseTime  = 100 * time.Millisecond
)

// Refuse sends back the requests that wait in the socket, of which no process can have
// known. Call it while no process accepts connections.
func (l *Listener) Refuse() {
	if l.ln == nil { // an attached process has it
		return
	}
	for begun := time.Now(); time.Since(begun) < refuseTime; {
		if l.ln.SetDeadline(time.Now().Add(refuseGrace)) != nil {
			return
		}
		c, err := l.ln.Accept()
		if err != nil {
			break
		}
		_, _ = fmt.Fprintf(c, undelivered, l.refusal)
		_ = c.Close()
	}
	_ = l.ln.SetDeadline(time.Time{})
}
