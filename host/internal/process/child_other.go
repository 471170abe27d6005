//go:build !linux

package process

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// startIn is never called: there are no cgroups on this system.
func startIn(*syscall.SysProcAttr, *os.File) {}

// awaitExit returns when the process has ended, and leaves it to be reaped.
func awaitExit(p *os.Process) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(kq)
	change := unix.Kevent_t{Fflags: unix.NOTE_EXIT}
	unix.SetKevent(&change, p.Pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	for {
		_, err := unix.Kevent(kq, []unix.Kevent_t{change}, make([]unix.Kevent_t, 1), nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// launchPath is the binary's own path: what is started may differ from what was
// checked if the file is replaced in between.
func launchPath(_, binary string, _ int) (string, error) { return binary, nil }
