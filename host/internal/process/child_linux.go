package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// startIn has a process start in the cgroup of an open directory.
func startIn(attr *syscall.SysProcAttr, dir *os.File) {
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
}

// awaitExit returns when the process has ended, and leaves it to be reaped.
func awaitExit(p *os.Process) {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// launchPath returns a path of the file that the child inherits as descriptor fd, so that the
// file that was checked is the one that runs, though another may have its path by now. The
// link in dir gives the process its name in ps and top, which a bare /proc/self/fd/N would not.
func launchPath(dir, binary string, fd int) (string, error) {
	link := filepath.Join(dir, filepath.Base(binary))
	return link, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", fd), link)
}
