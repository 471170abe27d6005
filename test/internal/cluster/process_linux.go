package cluster

import "syscall"

// attributes give a process its own group, and end it with the tests.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
