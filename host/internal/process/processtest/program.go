// Package processtest is for the tests of what starts processes.
package processtest

import (
	"os"
	"syscall"
)

// WriteProgram writes a program, and no child of this process that is about to start has the file open after
// that: the kernel does not execute what a process may write to.
func WriteProgram(path string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, 0o700)
}
