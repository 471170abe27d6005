package usage

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Of measures processes, by id. One that has ended is not in the result. It looks once at
// each process of the machine, however many are measured.
func Of(leaders []int) (map[int]Usage, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	wanted := make(map[int]bool, len(leaders))
	for _, pid := range leaders {
		wanted[pid] = true
	}
	total := make(map[int]Usage, len(leaders))
	for pid, p := range all {
		leader := owner(all, wanted, pid)
		if leader == 0 {
			continue
		}
		u := total[leader]
		u.PIDs = append(u.PIDs, pid)
		u.CPU += p.cpu
		u.Memory += memory(pid)
		total[leader] = u
	}
	return total, nil
}

// Zombies returns the children of a process that have ended and that it has not waited for.
func Zombies(parent int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var ended []int
	for pid, p := range all {
		if p.parent == parent && p.zombie {
			ended = append(ended, pid)
		}
	}
	return ended, nil
}

// Children returns the children of a process that run.
func Children(parent int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var run []int
	for pid, p := range all {
		if p.parent == parent && !p.zombie {
			run = append(run, pid)
		}
	}
	return run, nil
}

// stat is what of /proc/PID/stat counts.
type stat struct {
	parent int
	zombie bool
	cpu    time.Duration
}

// Lineage returns a process and those that it descends from, the closest first. It is false if one of them has ended meanwhile, so
// that others are not known.
func Lineage(pid int) ([]int, bool) {
	var all []int
	for range 1000 { // processes end meanwhile, and others get their numbers: their parents may be a cycle
		p, ok := statOf(pid)
		if !ok {
			return nil, false
		}
		all = append(all, pid)
		if p.parent == 0 { // it has none, or one outside of this process' namespace
			return all, true
		}
		pid = p.parent
	}
	return nil, false
}

// Parent returns the process that has started one, or that its parent has left it to; false if
// the process has ended.
func Parent(pid int) (int, bool) {
	p, ok := statOf(pid)
	return p.parent, ok
}

func statOf(pid int) (stat, bool) {
	text, err := read("/proc/"+strconv.Itoa(pid)+"/stat", make([]byte, 1024))
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// owner returns the wanted process that a process belongs to, or 0.
func owner(all map[int]stat, wanted map[int]bool, pid int) int {
	for range len(all) { // the processes were not looked at all at once: their parents may be a cycle
		if wanted[pid] {
			return pid
		}
		p, ok := all[pid]
		if !ok {
			return 0
		}
		pid = p.parent
	}
	return 0
}

func processes() (map[int]stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int]stat, len(names))
	buf := make([]byte, 1024)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := read("/proc/"+name+"/stat", buf)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrPermission) {
				continue
			}
			return nil, err
		}
		if p, ok := parseStat(text); ok {
			all[pid] = p
		}
	}
	return all, nil
}

// read returns the beginning of a file.
func read(path string, buf []byte) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := io.ReadFull(f, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return buf[:n], nil
}

// tick is the unit of times in /proc, which is the same on all architectures that Go knows.
const tick = 10 * time.Millisecond

// parseStat parses /proc/PID/stat. The name in parentheses, which the process chooses, may
// hold anything.
func parseStat(text []byte) (stat, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return stat{}, false
	}
	var n [15]int64
	for _, i := range []int{1, 11, 12, 13, 14} {
		var err error
		if n[i], err = strconv.ParseInt(string(fields[i]), 10, 64); err != nil {
			return stat{}, false
		}
	}
	ticks := n[11] + n[12] + n[13] + n[14] // user and system, own and of children that were waited for
	return stat{zombie: string(fields[0]) == "Z", parent: int(n[1]), cpu: time.Duration(ticks) * tick}, true
}

// Memory measures the memory of processes that Of has found, and of no others: that is quick.
func Memory(pids []int) int64 {
	var total int64
	for _, pid := range pids {
		total += memory(pid)
	}
	return total
}

// memory is 0 for a process that has ended.
func memory(pid int) int64 {
	text, err := read("/proc/"+strconv.Itoa(pid)+"/status", make([]byte, 4096))
	if err != nil {
		return 0
	}
	return parseStatus(text)
}

// parseStatus returns the bytes of memory in /proc/PID/status.
func parseStatus(text []byte) int64 {
	var total int64
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if k := string(key); k != "RssAnon" && k != "RssShmem" {
			continue
		}
		digits, _, _ := bytes.Cut(bytes.TrimSpace(value), []byte(" "))
		if kib, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
			total += kib << 10
		}
	}
	return total
}
