package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// limitFiles bounds how many files the process may have open. Those that are open stay so.
func (p *Process) limitFiles() error {
	n := p.spec.OpenFiles
	if n == 0 {
		return nil
	}
	err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil)
	if errors.Is(err, unix.ESRCH) { // it has ended
		return nil
	}
	return err
}
