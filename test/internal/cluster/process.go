package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is how long a process has to end by itself.
const stopTimeout = time.Minute

// Process is a process of its own process group, with its output in a file.
type Process struct {
	Name string
	// Log is the path of the file with both outputs.
	Log string
	// Done is closed when the process has ended.
	Done chan struct{}

	cmd *exec.Cmd
	err error
}

// StartProcess starts a command; its output is appended to DIR/NAME.log.
func StartProcess(dir, name, path string, args ...string) (*Process, error) {
	return startProcess(dir, name, 0, nil, path, args...)
}

// startProcess starts a command with more variables in its environment, and as another user if uid is not 0, in dir then: the
// directory of the module may be out of that user's reach.
func startProcess(dir, name string, uid int, env []string, path string, args ...string) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(dir, name+".log"), Done: make(chan struct{})}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Env = Root(), append(slices.Clone(Environ()), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = Attributes()
	if uid != 0 {
		p.cmd.Dir = dir
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.Done)
	}()
	return p, nil
}

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ExitCode returns the exit code of a process that has ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal to the process alone.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Suspend stops a process, and returns when each of its threads is stopped: until then it
// can respond.
func Suspend(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("suspend process %d: %w", pid, err)
	}
	runs := func(file string) bool {
		stat, err := os.ReadFile(file)
		return err == nil && !bytes.Contains(stat, []byte(") T "))
	}
	for deadline := time.Now().Add(stopTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if !slices.ContainsFunc(threads, runs) {
			return nil
		}
	}
	return fmt.Errorf("process %d still runs %s after SIGSTOP", pid, stopTimeout)
}

// Kill ends the process group at once and waits for the process.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	<-p.Done
}

// Stop ends the process with SIGTERM. It is an error if it does not end in time or
// not with exit code 0; it has ended in any case.
func (p *Process) Stop() error {
	select {
	case <-p.Done:
		return fmt.Errorf("%s had ended by itself: %w", p.Name, errors.Join(p.err, p.tail()))
	default:
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Done:
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.Name, p.err)
		}
		return nil
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s does not end on SIGTERM within %v", p.Name, stopTimeout)
	}
}

// tail is an error that holds the last lines of the log.
func (p *Process) tail() error {
	return fmt.Errorf("last lines of its log:\n%s", Tail(p.Log, 30))
}

// Tail returns the last lines of a file.
func Tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Children returns the ids of all processes below one, by the base name of their
// first argument.
func Children(pid int) map[int]string {
	parents := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		if child, parent, ok := readStat(path); ok {
			parents[parent] = append(parents[parent], child)
		}
	}
	found := map[int]string{}
	var walk func(int)
	walk = func(pid int) {
		for _, child := range parents[pid] {
			found[child] = commandName(child)
			walk(child)
		}
	}
	walk(pid)
	return found
}

// readStat returns the process of a stat file and its parent. Zombies are not in the
// tree: they have ended.
func readStat(path string) (pid, parent int, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 || fields[0] == "Z" {
		return 0, 0, false
	}
	pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
	parent, _ = strconv.Atoi(fields[1])
	return pid, parent, true
}

func commandName(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	first, _, _ := bytes.Cut(text, []byte{0})
	return filepath.Base(string(first))
}
