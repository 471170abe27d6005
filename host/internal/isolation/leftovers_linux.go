package isolation

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Begin is to be called before the process is started, and End when it has ended, or was not started after all. Where
// no namespace ends what a stage has started, but it has a user of its own, that ends with the last process of the
// stage, and before the first one: it would count where the kernel counts what the user has.
func (l *Launcher) Begin() {
	if u := l.counted(); u != nil && !l.begun {
		l.begun = true
		u.change(l.uid, +1)
	}
}

func (l *Launcher) End() {
	if u := l.counted(); u != nil && l.begun {
		l.begun = false
		u.change(l.uid, -1)
	}
}

// counted returns what counts the processes of the user; nil if they end otherwise.
func (l *Launcher) counted() *Users {
	if l == nil || l.namespaces || l.uid == 0 {
		return nil
	}
	return l.users
}

// change counts a process of a user, and kills what others have left if it was the first.
func (u *Users) change(uid, by int) {
	u.leaving.Lock()
	defer u.leaving.Unlock()
	if u.live == nil {
		u.live = map[int]int{}
	}
	if by < 0 {
		u.live[uid] += by
	}
	if u.live[uid] == 0 {
		killAllOf(uid)
	}
	if by > 0 {
		u.live[uid] += by
	}
}

// killRounds bounds how often killAllOf looks for what its victims have started meanwhile.
const killRounds = 100

// killAllOf kills the processes of a user whose parents have ended, so that they are this process' or init's, and then
// their children.
func killAllOf(uid int) {
	user := fmt.Sprintf("\nUid:\t%d\t%[1]d\t%[1]d\t", uid)
	adopted := fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())
	left := func(status string) bool {
		return strings.Contains(status, user) && !strings.Contains(status, "\nState:\tZ") &&
			(strings.Contains(status, "\nPPid:\t1\n") || strings.Contains(status, adopted))
	}
	for range killRounds {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return
		}
		killed := 0
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			process, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			// The descriptor is of the process that the file is about, or of one that has ended.
			status, err := os.ReadFile("/proc/" + e.Name() + "/status")
			if err == nil && left(string(status)) && unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0) == nil {
				killed++
			}
			_ = unix.Close(process)
		}
		if killed == 0 {
			return
		}
	}
}
