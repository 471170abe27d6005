package isolation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// permits returns an error if a user, who is in no group but its own, does not have rights to a file: a sum of unix.R_OK, W_OK and
// X_OK. To read a directory is of no use without entering it.
func permits(path string, uid, rights int) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		rights |= unix.X_OK
	}
	if allows(path, info, uid)&rights == rights {
		return nil
	}
	letters, public := "", "o+"
	for _, r := range []struct {
		bit    int
		letter string
	}{{unix.R_OK, "r"}, {unix.W_OK, "w"}, {unix.X_OK, "x"}} {
		if rights&r.bit != 0 {
			letters += r.letter
		}
	}
	return fmt.Errorf("%s has mode %04o, which keeps out the user of the stage, %d: run chmod %s%s %s, or setfacl -m u:%d:%s %s",
		path, info.Mode().Perm(), uid, public, letters, path, uid, letters, path)
}

// allows returns the rights that the mode and the access control list of a file give a user.
func allows(path string, info fs.FileInfo, uid int) int {
	mode := int(info.Mode().Perm())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid {
		return mode >> 6 & 7
	}
	if rights, ok := listed(path, uid); ok {
		return rights
	}
	return mode & 7
}

// listed returns the rights of a user in the access control list of a file, if it is named there. The format is
// that of linux/posix_acl_xattr.h: a version of 4 bytes, then entries with tag, rights and id.
func listed(path string, uid int) (int, bool) {
	const userTag, maskTag, entrySize = 0x02, 0x10, 8
	list := make([]byte, 4+entrySize*1024)
	n, err := unix.Getxattr(path, "system.posix_acl_access", list)
	if err != nil || n < 4 {
		return 0, false
	}
	rights, mask, found := 0, 7, false
	for entry := list[4:n]; len(entry) >= entrySize; entry = entry[entrySize:] {
		tag, of, id := binary.LittleEndian.Uint16(entry), int(binary.LittleEndian.Uint16(entry[2:])),
			int(binary.LittleEndian.Uint32(entry[4:]))
		switch {
		case tag == maskTag:
			mask = of
		case tag == userTag && id == uid:
			rights, found = of, true
		}
	}
	return rights & mask, found
}

// pass lets the user of a stage, as a member of a group, pass through the directories above a path. Those below one of the
// host's own are opened to that group, no further than that; others have to be open already.
func pass(path string, own []string, uid, group int) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if err := passOne(dir, own, uid, group); err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func passOne(dir string, own []string, uid, group int) error {
	err := permits(dir, uid, unix.X_OK)
	if err == nil || !insideOne(dir, own) {
		return err
	}
	info, statErr := os.Stat(dir)
	if statErr != nil {
		return statErr
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != os.Geteuid() {
		return err
	}
	if int(stat.Gid) == group && info.Mode().Perm()&0o010 != 0 {
		return nil
	}
	return errors.Join(os.Chown(dir, -1, group), os.Chmod(dir, 0o710))
}

func insideOne(path string, dirs []string) bool {
	for _, dir := range dirs {
		if within(path, filepath.Clean(dir)) {
			return true
		}
	}
	return false
}
