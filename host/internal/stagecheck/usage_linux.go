package stagecheck

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// usageOf adds up what the processes of a group hold.
func usageOf(group int) (usage, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return usage{}, err
	}
	var total usage
	found := false
	for _, dir := range dirs {
		u, ok := usageIn(dir, group)
		if ok {
			found = true
			total.resident += u.resident
			total.files += u.files
		}
	}
	if !found {
		return usage{}, errors.New("there is no such process")
	}
	return total, nil
}

// statOf returns what the kernel says of a process, from its state on; nothing if it has ended.
func statOf(dir string) [][]byte {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return nil
	}
	// The name in parentheses may hold anything.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
	return bytes.Fields(rest)
}

// usageIn reads one process, if it belongs to the group.
func usageIn(dir string, group int) (usage, bool) {
	fields := statOf(dir)
	if len(fields) < 22 || string(fields[2]) != strconv.Itoa(group) {
		return usage{}, false
	}
	pages, err := strconv.ParseInt(string(fields[21]), 10, 64)
	if err != nil {
		return usage{}, false
	}
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return usage{}, false
	}
	return usage{resident: pages * int64(os.Getpagesize()), files: len(files)}, true
}

// String is for error messages.
func (u usage) String() string { return fmt.Sprintf("%d MiB, %d descriptors", u.resident>>20, u.files) }
