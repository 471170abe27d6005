package isolation

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/guard"
)

// What the processes of a stage leave behind ends with the last of them, and with nothing of others.
func TestLeftovers(t *testing.T) { // not in parallel, since it adopts processes
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	uid, other := guard.LastStageID-1, guard.LastStageID
	leave := func(uid int) int {
		cmd := exec.Command("/bin/sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo $!")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		})
		return pid
	}
	ended := func(pid int) bool {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		return err != nil || strings.Contains(string(text), "\nState:\tZ")
	}
	users := &Users{byStage: map[string]int{}}
	first, second := &Launcher{uid: uid, users: users}, &Launcher{uid: uid, users: users}
	before, others := leave(uid), leave(other)
	first.Begin()
	if _, err := unix.Wait4(before, nil, 0, nil); err != nil {
		t.Error(err)
	}
	meanwhile := leave(uid)
	second.Begin()
	second.End()
	second.End()
	if ended(meanwhile) {
		t.Error("what is of a stage was killed that runs")
	}
	first.End()
	if _, err := unix.Wait4(meanwhile, nil, 0, nil); err != nil {
		t.Error(err)
	}
	if ended(others) {
		t.Error("what is of another user was killed")
	}
}
