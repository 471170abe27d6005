package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// maxSocketPath is the longest path of a Unix socket that every system here takes.
const maxSocketPath = 107

// go-plugin makes a directory in the runtime directory for each process, in which the process
// makes its control socket: /plugin-dirNNNNNNNNNN/pluginNNNNNNNNNN.
const (
	controlDirPrefix  = "plugin-dir"
	controlSocketRoom = 1 + len(controlDirPrefix) + 10 + len("/plugin") + 10
	// longestSuffix follows the secret in the names of sockets of a stage.
	longestSuffix = ".host.sock"
)

// PrepareRuntimeDir creates the directory for sockets with mode 0700, or checks that an
// existing one belongs to this user and sets its mode. It checks that the paths of the
// sockets of the given stages are not too long for the kernel, and removes sockets and
// directories of an earlier host: call it once, first, and while holding the lock of the
// data directory.
func PrepareRuntimeDir(dir string, stages []string) error {
	err := checkSocketRoom(dir, stages)
	if err == nil {
		err = makePrivate(dir)
	}
	if err == nil {
		err = removeLeftovers(dir)
	}
	if err != nil {
		return fmt.Errorf("runtime directory %s: %w", dir, err)
	}
	return nil
}

// checkSocketRoom checks the lengths of the paths of the control sockets, which are all
// equal, and of those of each stage.
func checkSocketRoom(dir string, stages []string) error {
	need := controlSocketRoom
	for _, stage := range stages {
		need = max(need, len("/")+len(guard.SecretName(stage, longestSuffix)))
	}
	if len(dir)+need <= maxSocketPath {
		return nil
	}
	return fmt.Errorf("its path has %d bytes, which leaves too little of the %d that the path of a Unix socket can have; set runtimeDir to a directory with at most %d",
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
		return errors.New("is a link or a file, it must be a directory")
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
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&fs.ModeSocket != 0:
			errs = append(errs, os.Remove(path))
		case e.IsDir() && strings.HasPrefix(e.Name(), controlDirPrefix):
			errs = append(errs, removeInTime(path))
		}
	}
	return errors.Join(errs...)
}

// Listener is the listening Unix socket on which a stage serves requests. The host
// owns it, so that it outlives a process of the stage: connections that arrive while
// no process runs wait in it for the next one.
type Listener struct {
	ln      atomic.Pointer[net.UnixListener] // nil if the socket is the attached process'
	path    string
	refusal string
	// refusing is set while Refuse accepts connections.
	refusing atomic.Bool
}

// NewListener opens a socket in dir, which has to keep other users out. Its name begins with that of the stage, and is
// secret. Close removes it.
func NewListener(dir, stage string) (*Listener, error) {
	path := filepath.Join(dir, guard.SecretName(stage, ".sock"))
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("stage %q: the path of its socket, %s, would have %d bytes, %d are possible; set runtimeDir to a directory with a shorter path",
			stage, path, len(path), maxSocketPath)
	}
	l := &Listener{path: path, refusal: rand.Text()}
	if err := l.listen(); err != nil {
		return nil, fmt.Errorf("stage %q: data socket: %w", stage, err)
	}
	return l, nil
}

func (l *Listener) listen() error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.path, Net: "unix"})
	if err != nil {
		return err
	}
	if err := os.Chmod(l.path, 0o600); err != nil {
		return errors.Join(err, ln.Close())
	}
	l.ln.Store(ln)
	return nil
}

// mend makes the socket take connections, whatever a process that has inherited it has done to it: one that is shut
// down stays so, and is replaced by another at its path; the length of the backlog is set to what the system allows.
func (l *Listener) mend(ctx context.Context) error {
	conn, err := guard.Dial(ctx, l.path)
	if err == nil {
		_ = conn.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		if err := l.Close(); err != nil {
			return err
		}
		return l.listen()
	}
	return l.control(func(fd int) error { return unix.Listen(fd, math.MaxInt32) })
}

// Path returns the path of the socket.
func (l *Listener) Path() string { return l.path }

// Refusal returns the value of HeaderUndelivered in the responses of Refuse. It is secret, so
// that no stage can pretend that it has not executed a request.
func (l *Listener) Refusal() string { return l.refusal }

// Close removes the socket. A process that has inherited it no longer gets connections.
func (l *Listener) Close() error {
	ln := l.ln.Load()
	if ln == nil {
		return nil
	}
	// An accept that blocks returns then, whatever flags the socket has: see Refuse.
	err := l.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
	if errors.Is(err, unix.ENOTCONN) { // as the system may say of a socket that listens
		err = nil
	}
	return errors.Join(err, ln.Close())
}

// control calls f with the descriptor.
func (l *Listener) control(f func(fd int) error) error {
	raw, err := l.ln.Load().SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// file returns a descriptor for a child to inherit. It is not net's File, which
// would make the socket blocking, for every process that shares it.
func (l *Listener) file(ctx context.Context) (*os.File, error) {
	if err := l.mend(ctx); err != nil {
		return nil, err
	}
	dup := -1
	err := l.control(func(fd int) (err error) {
		dup, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return os.NewSyscallError("fcntl", err)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dup), l.path), nil
}

// undelivered is the response on a connection that no process of the stage has accepted: a
// request that waits in it has provably not been executed.
const undelivered = "HTTP/1.1 503 Service Unavailable\r\n" + stagev1.HeaderUndelivered + ": %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

const (
	// refuseGrace is how long Refuse waits for the next connection, and refuseTime how long it
	// accepts connections.
	refuseGrace = 5 * time.Millisecond
	refuseTime  = 100 * time.Millisecond
)

// Refuse accepts the connections that wait in the socket and responds that their requests
// have not been executed. Call it while no process accepts connections.
//
// Flags of the socket are those of each process that has inherited it: one that has made it block would make
// Accept wait without end. So Refuse makes it not block again, and returns in time if a process that is left changes that
// in the same moment.
func (l *Listener) Refuse() {
	if l.ln.Load() == nil || !l.refusing.CompareAndSwap(false, true) { // it blocks
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.refusing.Store(false)
		l.refuse()
	}()
	select {
	case <-done:
	case <-time.After(2 * refuseTime):
	}
}

func (l *Listener) refuse() {
	ln := l.ln.Load()
	if l.control(func(fd int) error { return unix.SetNonblock(fd, true) }) != nil {
		return
	}
	for begun := time.Now(); time.Since(begun) < refuseTime; {
		if ln.SetDeadline(time.Now().Add(refuseGrace)) != nil {
			return
		}
		c, err := ln.Accept()
		if err != nil {
			break
		}
		_ = c.SetWriteDeadline(time.Now().Add(refuseGrace))
		_, _ = fmt.Fprintf(c, undelivered, l.refusal)
		_ = c.Close()
	}
	_ = ln.SetDeadline(time.Time{})
}
