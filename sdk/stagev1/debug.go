package stagev1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The sockets of a stage that was started by hand, with --debug, and that a host
// attaches to instead of launching it. They are in one folder, and speak what the
// control socket and the data socket of a launched stage speak, the control socket
// without TLS: the folder's permissions and the credentials of the peers protect them.
const (
	DebugControlSocket = "control.sock"
	DebugDataSocket    = "data.sock"
)

// DebugDir is the folder of the sockets if none is given: one of the user's and the
// stage's own, the same at every start.
func DebugDir(stage string) string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = os.TempDir()
	}
	return filepath.Join(base, fmt.Sprintf("catena-debug-%d-%s", os.Geteuid(), stage))
}

// maxDebugDir is the longest path of a folder that leaves room for the sockets' names.
const maxDebugDir = 107 - len("/"+DebugControlSocket)

// CheckDebugDir says why the folder must not be used: it is none, belongs to another
// user or is open to others, or its path is too long for sockets. If there is nothing,
// the error is an fs.ErrNotExist.
func CheckDebugDir(dir string) error {
	if len(dir) > maxDebugDir {
		return fmt.Errorf("folder %s: its path has %d bytes, those of sockets allow %d", dir, len(dir), maxDebugDir)
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("folder %s: %w", dir, fs.ErrNotExist)
	} else if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("folder %s: is no folder", dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("folder %s: belongs to user %d, it must belong to this user (%d)", dir, stat.Uid, os.Geteuid())
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return fmt.Errorf("folder %s: its mode is %04o, it must keep other users out; run chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}
