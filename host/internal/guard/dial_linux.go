package guard

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dial connects to a socket of a stage, and follows no link in its place. To a host that runs as root, a socket may
// belong to a user that it has given the stage: the connection is that user's then, as stages take no connections of
// others, not even of root.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is not a socket", path)
	}
	path = fmt.Sprintf("/proc/self/fd/%d", fd)
	if os.Geteuid() == 0 && IsStageID(int(stat.Uid)) {
		return dialAs(ctx, path, stat.Uid)
	}
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// dialAs connects as a user, with the rights of root to files.
func dialAs(ctx context.Context, path string, uid uint32) (net.Conn, error) {
	const same = ^uintptr(0)
	// The kernel keeps the user of a thread, and net connects on the thread of the caller. One whose user could not be
	// changed back ends with its goroutine, since it stays locked.
	result := make(chan error, 1)
	var conn net.Conn
	go func() {
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("become the user %d: %w", uid, errno)
			return
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno == 0 {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	err := <-result
	return conn, err
}
