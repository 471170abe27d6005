package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

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

// By how much the score of stages, by which the kernel chooses what to end for want of memory, is above that of the
// host: proc(5), oom_score_adj, where 1000 is all of the memory. The host can start each stage again, and nothing
// starts the host but what supervises it; others need the stages of Kubernetes.
const (
	trustedScore = 300
	otherScore   = 600
	maxScore     = 1000
)

// endFirst has the kernel end the process before this one for want of memory. It needs no privilege.
func endFirst(pid int, trusted bool) error {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	above := otherScore
	if trusted {
		above = trustedScore
	}
	err = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(score+above, maxScore))), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) { // it has ended
		return nil
	}
	return err
}
