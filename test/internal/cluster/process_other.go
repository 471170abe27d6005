//go:build unix && !linux

package cluster

import "syscall"

// attributes give a process its own group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
