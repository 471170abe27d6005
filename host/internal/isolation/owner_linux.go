package isolation

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/catena-dev/catena/host/internal/guard"
)

// chownAll gives a directory and all that is in it to a user, unless the directory is the user's
// already. The directory itself comes last: an attempt that was interrupted is made again.
// A process that runs may change the directory meanwhile: nothing outside is reached through it.
func chownAll(dir string, uid int) error {
	owner, err := ownerOf(dir)
	if err != nil || owner == uid {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != "." {
			err = root.Lchown(path, uid, uid)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.Lchown(dir, uid, uid)
}

// reclaim makes root the owner of a directory again that a stage has had, for one that runs as root:
// what it adds would otherwise stay out of reach when the stage is isolated again.
func reclaim(dir string) error {
	if dir == "" || os.Geteuid() != 0 {
		return nil
	}
	owner, err := ownerOf(dir)
	if err != nil || !guard.IsStageID(owner) {
		return err
	}
	return os.Lchown(dir, 0, 0)
}

func ownerOf(dir string) (int, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return int(stat.Uid), nil
}
