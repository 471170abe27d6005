package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a confined process leaves behind, whose parent has ended, is killed at the end of the process that has started it; another child is not.
func TestEndOrphans(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envMode+"=ends-orphans")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "before: orphan and child run, after: child runs" {
		t.Errorf("%s, %v", out, err)
	}
}

// playEndOrphans is a process that starts a confined one, which leaves a process behind, and another child.
func playEndOrphans() {
	child := exec.Command("sleep", "300")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	confined := exec.Command("/proc/self/exe")
	confined.Env = append(os.Environ(), envMode+"=confined")
	runtime.LockOSThread()
	if err := adopt(); err != nil {
		fmt.Println(err)
	}
	if err := child.Start(); err != nil {
		fmt.Println(err)
	}
	pid, err := confined.Output()
	if err != nil {
		fmt.Println(err)
	}
	var orphan int
	fmt.Sscan(string(pid), &orphan)
	runs := func(pid int) bool { return unix.Kill(pid, 0) == nil }
	before := runs(orphan) && runs(child.Process.Pid)
	if err := EndOrphans(); err != nil {
		fmt.Println(err)
	}
	if before && !runs(orphan) && runs(child.Process.Pid) {
		fmt.Println("before: orphan and child run, after: child runs")
	} else {
		fmt.Printf("before: %v, after: orphan %v, child %v\n", before, runs(orphan), runs(child.Process.Pid))
	}
	_ = child.Process.Kill()
}

// playConfined starts a process in a session of its own from behind a filter of system calls, prints its id, and ends.
func playConfined() {
	runtime.LockOSThread()
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
		fmt.Println(errno)
	}
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(cmd.Process.Pid)
}
