package cluster

import "syscall"

// Attributes give a process its own group, and end it with the tests.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
