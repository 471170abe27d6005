//go:build unix && !linux

package cluster

import "syscall"

// Attributes give a process its own group.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
