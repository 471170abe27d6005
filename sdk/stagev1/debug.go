package stagev1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The sockets of a stage that a user has started with --debug, and that a host attaches to
// instead of launching it. They are in one directory, and have the protocols of the control
// socket and the data socket of a launched stage, the control socket without TLS: the
// directory's permissions and the credentials of the peers protect them.
const (
	DebugControlSocket = "control.sock"
	DebugDataSocket    = "data.sock"
)

// DebugDir returns the directory of the sockets if none is given: one for this user and
// this stage, the same at every start.
func DebugDir(stage string) string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = os.TempDir()
	}
	return filepath.Join(base, fmt.Sprintf("catena-debug-%d-%s", os.Geteuid(), stage))
}

// maxDebugDir is the longest path of a directory that leaves room for the sockets' names.
const maxDebugDir = 107 - len("/"+DebugControlSocket)

// CheckDebugDir returns an error if the directory must not be used: it is not a directory,
// belongs to another user, is accessible to others, or its path is too long for sockets. If
// it does not exist, the error is an fs.ErrNotExist.
func CheckDebugDir(dir string) error {
	if len(dir) > maxDebugDir {
		return fmt.Errorf("directory %s: its path has %d bytes, at most %d are possible for sockets", dir, len(dir), maxDebugDir)
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("directory %s: %w", dir, fs.ErrNotExist)
	} else if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("directory %s: belongs to user %d, it must belong to this user (%d)", dir, stat.Uid, os.Geteuid())
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return fmt.Errorf("directory %s: its mode is %04o, it must keep other users out; run chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}
