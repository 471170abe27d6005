package pluginwatch

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func (s *state) fromSystem(info os.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode, s.changed = uint64(st.Dev), st.Ino, time.Unix(st.Ctim.Unix())
	}
}

// isOpenForWriting reports whether a process has the file open for writing. The kernel
// gives no lease for reading while there is one. Of files of other users nothing can be
// said; the kernel does not execute such a file either way.
func isOpenForWriting(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return errors.Is(err, unix.EAGAIN)
	}
	_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return false
}
