package stagecheck

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// child is a process that a stage has started.
type child struct {
	pid, group int
	command    string
}

func (c child) String() string {
	return fmt.Sprintf("%s (process %d, group %d)", c.command, c.pid, c.group)
}

// outside returns the processes that have been started below a stage, which shows in their environment, and
// have left its process group. Whose child a process is says nothing: one that has left its parent is another's.
func outside(group int, mark string) []child {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var all []child
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		fields := statOf(dir)
		if len(fields) < 3 || string(fields[0]) == "Z" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		of, err := strconv.Atoi(string(fields[2]))
		if err != nil || of == group {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(dir, "comm"))
		all = append(all, child{pid, of, string(bytes.TrimSpace(command))})
	}
	return all
}
