//go:build linux

package process

import (
	"errors"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// noticeWithin is how long the end of a process may stay unnoticed.
const noticeWithin = 50 * time.Millisecond

// The end of a process is noticed at once, though another process still holds its pipes. A busy
// machine can delay any one notice: the faster half must be in time.
func TestExitIsNoticedAtOnce(t *testing.T) {
	for _, mode := range []string{"good", "grandchild", "daemon"} {
		t.Run(mode, func(t *testing.T) {
			f := newFixture(t, mode)
			const tries = 5
			var took []time.Duration
			for range tries {
				took = append(took, noticed(t, f, mode))
			}
			slices.Sort(took)
			if took[tries/2] > noticeWithin {
				t.Errorf("noticed after %v, want %s in at least half of the cases", took, noticeWithin)
			}
		})
	}
}

// noticed kills a process and measures from the moment at which the kernel reports its end.
func noticed(t *testing.T, f *fixture, mode string) time.Duration {
	t.Helper()
	p := f.start(t)
	if mode != "good" {
		child, err := strconv.Atoi(p.Description().GetVersion())
		if err != nil || !alive(child) {
			t.Fatalf("no grandchild: %v", err)
		}
		defer syscall.Kill(child, syscall.SIGKILL)
	}
	fd, err := unix.PidfdOpen(p.PID(), 0)
	if err != nil {
		t.Skipf("this kernel does not report the end of processes: %v", err)
	}
	defer unix.Close(fd)
	ended := make(chan time.Time, 1)
	go func() {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		ended <- time.Now()
	}()
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	at := time.Now()
	return at.Sub(<-ended)
}
