package apiserver

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of processor time in /proc: USER_HZ is 100 on every Linux port of Go.
const tick = 10 * time.Millisecond

// CPU returns the processor time that the server has used since its start, that of processes
// that have ended included.
func (s *Server) CPU() time.Duration {
	var sum time.Duration
	for _, pid := range s.tree() {
		sum += processorTime(pid) + childrenTime(pid)
	}
	return sum
}

// processorTime returns the processor time of a process, from its clock: the figures in /proc are
// too coarse for a short round. It is 0 if the process has ended.
func processorTime(pid int) time.Duration {
	const sched = 2 // CPUCLOCK_SCHED, of all threads; see clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// childrenTime returns the processor time of the children of a process that have ended.
func childrenTime(pid int) time.Duration {
	_, f := procStat(fmt.Sprintf("/proc/%d/stat", pid))
	if f == nil {
		return 0
	}
	user, _ := strconv.Atoi(f[13]) // cutime
	system, _ := strconv.Atoi(f[14])
	return time.Duration(user+system) * tick
}

// PSS returns the proportional set size of the server's processes, in bytes.
func (s *Server) PSS() int64 {
	var sum int64
	for _, pid := range s.tree() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended
		}
		lines := bufio.NewScanner(bytes.NewReader(b))
		for lines.Scan() {
			if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "Pss:" {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				sum += kib << 10
			}
		}
	}
	return sum
}

// tree returns the processes of the server with all their descendants.
func (s *Server) tree() []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		if pid, fields := procStat(path); fields != nil {
			ppid, _ := strconv.Atoi(fields[1])
			children[ppid] = append(children[ppid], pid)
		}
	}
	var all []int
	var walk func(int)
	walk = func(pid int) {
		all = append(all, pid)
		for _, c := range children[pid] {
			walk(c)
		}
	}
	for _, p := range s.procs {
		walk(p.Process.Pid)
	}
	return all
}

// procStat returns the pid and the fields of a stat file from the process state on.
func procStat(path string) (int, []string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, nil
	}
	pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
	return pid, strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// DiskSize returns the size of the system's binaries in bytes. A file that has several names is
// counted once.
func (s *Server) DiskSize() (int64, error) {
	var sum int64
	var seen []os.FileInfo
	for _, path := range s.Binaries {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(seen, func(f os.FileInfo) bool { return os.SameFile(f, info) }) {
			seen = append(seen, info)
			sum += info.Size()
		}
	}
	return sum, nil
}
