package scheduling

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// threads are those of this process.
const threads = "/proc/self/task"

func set(policy string) error {
	number := uint32(unix.SCHED_NORMAL)
	if policy == Batch {
		number = unix.SCHED_BATCH
	}
	// A thread that has not been looked at may start another one, which is in the list a little later.
	for passes, unchanged := 0, 0; passes < maxPasses; passes++ {
		all, err := setThreads(number)
		switch {
		case err != nil:
			return fmt.Errorf("scheduling policy %s: %w", policy, err)
		case !all:
			unchanged = 0
		case unchanged > 0:
			return nil
		default:
			unchanged++
			time.Sleep(startTime)
		}
	}
	return fmt.Errorf("scheduling policy %s: threads start and end faster than it is set", policy)
}

const (
	// maxPasses bounds how often the threads are gone through: mostly three times.
	maxPasses = 1000
	// startTime is more than the kernel takes from the copy of a thread's policy to the new thread in the list.
	startTime = time.Millisecond
)

// setThreads sets the policy of the threads that there are, and reports whether all of them had it.
func setThreads(policy uint32) (all bool, err error) {
	entries, err := os.ReadDir(threads)
	if err != nil {
		return false, err
	}
	// The kernel ends the list early when a thread ends that it has come to.
	var st unix.Stat_t
	if err := unix.Stat(threads, &st); err != nil {
		return false, err
	}
	const ofDirectory = 2
	all = uint64(len(entries))+ofDirectory == uint64(st.Nlink)
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			return false, err
		}
		changed, err := setThread(id, policy)
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			return false, err
		}
		all = all && !changed
	}
	return all, nil
}

func setThread(id int, policy uint32) (changed bool, err error) {
	now, err := unix.SchedGetAttr(id, 0)
	if err != nil {
		return false, err
	}
	if now.Policy == policy || now.Policy != unix.SCHED_NORMAL && now.Policy != unix.SCHED_BATCH {
		return false, nil
	}
	err = unix.SchedSetAttr(id, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: policy, Nice: now.Nice, Flags: now.Flags & unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	return err == nil, err
}
