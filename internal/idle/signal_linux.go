package idle

import (
	"os"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signalUse sends to c whenever this process has used another quantum of the processors, until stop is called. A timer
// of the process's own clock does that, which wakes no thread while the process sleeps; see timer_create(2). Children
// do not inherit it, nor a program that this process executes. Where the system does not allow it, nothing is sent.
func signalUse(c chan<- os.Signal) (stop func()) {
	signal.Notify(c, unix.SIGVTALRM)
	id, err := startTimer(unix.CLOCK_PROCESS_CPUTIME_ID, unix.SIGVTALRM, quantum)
	return func() {
		if err == nil {
			_, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(id), 0, 0)
		}
		signal.Stop(c)
	}
}

// sigEvent is the kernel's struct sigevent, which has 64 bytes.
type sigEvent struct {
	value  uintptr
	signal int32
	notify int32 // 0 is by a signal to the process
	_      [56]byte
}

// startTimer has a signal sent to this process after each period of a clock.
func startTimer(clock int, sig unix.Signal, period time.Duration) (id int32, err error) {
	event := sigEvent{signal: int32(sig)}
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE,
		uintptr(clock), uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return 0, errno
	}
	each := unix.NsecToTimespec(period.Nanoseconds())
	times := unix.ItimerSpec{Interval: each, Value: each}
	_, _, errno = unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		_, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(id), 0, 0)
		return 0, errno
	}
	return id, nil
}
