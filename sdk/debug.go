package sdk

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// serveDebug waits for hosts that attach to this process, one after the other, until a
// signal ends it. Each gets a new instance of the stage: that of the host before it has
// been stopped.
func serveDebug(stage Stage, dir string, out io.Writer) error {
	if err := stage.check(); err != nil {
		return err
	}
	how := stage.Name
	if dir == "" {
		dir = stagev1.DebugDir(stage.Name)
	} else {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		dir = abs
		how += "=" + dir
	}
	unlock, err := takeDebugDir(dir)
	if err != nil {
		return fmt.Errorf("--debug: %w", err)
	}
	defer unlock()
	control, err := listenIn(dir, stagev1.DebugControlSocket)
	if err != nil {
		return fmt.Errorf("--debug: %w", err)
	}
	defer control.Close()
	closeOnSignal(control)
	logger := hclog.New(&hclog.LoggerOptions{Name: stage.Name, Level: debugLevel(), Output: os.Stderr})
	fmt.Fprintf(out, "stage %s, process %d, waits for a host: catena serve --attach %s\n", stage.Name, os.Getpid(), how)
	d := debugger{stage: stage, dir: dir, log: logger, sessions: make(chan session)}
	go d.accept(control)
	for s := range d.sessions {
		if err := d.serve(s); err != nil {
			return err
		}
	}
	return nil
}

func debugLevel() hclog.Level {
	if level := hclog.LevelFromString(os.Getenv(stagev1.EnvLogLevel)); level != hclog.NoLevel {
		return level
	}
	return hclog.Debug
}

// takeDebugDir creates the directory and locks it for this process for as long as it runs.
func takeDebugDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := stagev1.CheckDebugDir(dir); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("directory %s: another process of the stage is using it; end that, or give this one another directory: %w", dir, err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}

// listenIn opens a socket in a directory that this process has locked.
func listenIn(dir, name string) (*net.UnixListener, error) {
	path := filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// closeOnSignal ends the wait for hosts. A second signal ends the process at once.
func closeOnSignal(control net.Listener) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		signal.Stop(signals)
		_ = control.Close()
	}()
}

// debugger serves the stage to one host after the other.
type debugger struct {
	stage    Stage
	dir      string
	log      hclog.Logger
	sessions chan session
}

// session is a connection of a host to the control socket.
type session struct {
	conn *sessionConn
	pid  int // of the host
}

// sessionConn closes a channel when it is closed.
type sessionConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *sessionConn) Close() error {
	c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}

// accept accepts connections of this user while no host is attached. When the socket is
// closed, so is the session.
func (d *debugger) accept(control net.Listener) {
	defer close(d.sessions)
	var last *sessionConn
	log := refusals{Logger: d.log}
	for {
		conn, err := control.Accept()
		if err != nil {
			if last != nil {
				_ = last.Close()
			}
			return
		}
		pid, uid, err := peerOf(conn)
		if err == nil && uid != os.Geteuid() {
			err = fmt.Errorf("process %d of user %d has connected, only this user may", pid, uid)
		}
		if err != nil {
			log.refused("control", err)
			_ = conn.Close()
			continue
		}
		s := session{conn: &sessionConn{Conn: conn, ended: make(chan struct{})}, pid: pid}
		select {
		case d.sessions <- s:
			last = s.conn
		default: // a host is attached; this one tries again
			_ = conn.Close()
		}
	}
}

// serve serves one session.
func (d *debugger) serve(s session) error {
	defer s.conn.Close()
	data, err := listenIn(d.dir, stagev1.DebugDataSocket)
	if err != nil {
		return fmt.Errorf("--debug: %w", err)
	}
	service, err := NewService(d.stage, newHostListener(data, s.pid, d.log), d.log)
	if err != nil {
		return errors.Join(err, data.Close())
	}
	defer service.Close()
	d.log.Info("a host has attached", "host", s.pid)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	stagev1.RegisterStageServer(server, service)
	_ = server.Serve(&oneConn{session: s, addr: data.Addr()})
	server.Stop()
	d.log.Info("the host has detached, waiting for the next", "host", s.pid)
	return nil
}

// oneConn is a listener with one connection.
type oneConn struct {
	session session
	addr    net.Addr
	given   bool
}

// Accept returns the connection, and then waits for its end.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.session.conn, nil
	}
	<-l.session.conn.ended
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error { return nil }

func (l *oneConn) Addr() net.Addr { return l.addr }
