// Package systemd is the host as a service of systemd: the messages of sd_notify(3), the watchdog, and
// a socket that systemd listens on.
//
// Without systemd, all of it does nothing.
package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Service is what systemd has passed to this process.
type Service struct {
	// Listener is the socket that systemd listens on in place of the host, or nil.
	Listener net.Listener
	// Watchdog is the time after which systemd takes a host for dead that has not said Alive; 0 if it does not wait for that.
	Watchdog time.Duration

	notify *net.UnixAddr // nil if systemd expects no messages
}

// FromEnvironment takes what systemd has passed out of the environment: other code, Kubernetes' server among it, would
// report by itself that it is ready, and processes that the host starts would take the variables for theirs. So it works
// once in a process.
func FromEnvironment() (Service, error) {
	s := Service{}
	if path := os.Getenv("NOTIFY_SOCKET"); path != "" {
		s.notify = &net.UnixAddr{Name: path, Net: "unixgram"}
	}
	watchdog, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		return s, err
	}
	s.Watchdog = watchdog
	s.Listener, err = listener(activation.Files(true))
	return s, errors.Join(err, os.Unsetenv("NOTIFY_SOCKET"), os.Unsetenv("LISTEN_PIDFDID"))
}

// errNoListener says what the host can serve on.
var errNoListener = errors.New("catena serves on one listening TCP socket: the .socket unit needs exactly one ListenStream=, a port or ADDRESS:PORT, " +
	"and must not have Accept=yes")

// listener returns the socket among those that systemd has passed, which it closes, or nil.
func listener(files []*os.File) (net.Listener, error) {
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	switch len(files) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, fmt.Errorf("systemd has passed %d sockets: %w", len(files), errNoListener)
	}
	if !isListening(files[0]) {
		return nil, fmt.Errorf("systemd has passed a socket that does not listen, %s: %w", files[0].Name(), errNoListener)
	}
	l, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("systemd has passed %s: %w: %w", files[0].Name(), err, errNoListener)
	}
	if _, ok := l.(*net.TCPListener); !ok {
		return nil, errors.Join(fmt.Errorf("systemd has passed the socket %s: %w", l.Addr(), errNoListener), l.Close())
	}
	return l, nil
}

// isListening reports whether a file is a socket that accepts connections.
func isListening(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	listening := 0
	_ = raw.Control(func(fd uintptr) { listening, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN) })
	return listening != 0
}

// Messages of sd_notify(3).
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
	Alive    = daemon.SdNotifyWatchdog
)

// Reloading tells systemd that the configuration is being read, until the next Ready.
func Reloading() string {
	return daemon.SdNotifyReloading + "\n" + strings.TrimSuffix(daemon.SdNotifyMonotonicUsec(), "\n")
}

// Status says how the service does, in one line.
func Status(line string) string { return "STATUS=" + strings.ReplaceAll(line, "\n", " ") }

// Watchdog changes the time after which systemd takes the host for dead.
func Watchdog(d time.Duration) string { return fmt.Sprintf("WATCHDOG_USEC=%d", d.Microseconds()) }

// Notify sends messages to systemd, as one.
func (s Service) Notify(messages ...string) error {
	if s.notify == nil {
		return nil
	}
	conn, err := net.DialUnix(s.notify.Net, nil, s.notify)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(strings.Join(messages, "\n")))
	return errors.Join(err, conn.Close())
}

// Environ returns the environment with the variables that FromEnvironment has taken out, for a program that goes on in this process.
func (s Service) Environ(environment []string) []string {
	all := slices.Clone(environment)
	if s.notify != nil {
		all = append(all, "NOTIFY_SOCKET="+s.notify.Name)
	}
	if s.Watchdog > 0 {
		all = append(all, fmt.Sprintf("WATCHDOG_USEC=%d", s.Watchdog.Microseconds()), fmt.Sprintf("WATCHDOG_PID=%d", os.Getpid()))
	}
	return all
}

// IsNotified reports whether systemd expects messages.
func (s Service) IsNotified() bool { return s.notify != nil }
