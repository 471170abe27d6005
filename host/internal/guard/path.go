package guard

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may lead through, as for the kernel.
const maxLinks = 40

// CheckPath checks that only root and the user of this process can change the file or directory
// at path, or put another in its place: they own it and every directory and symbolic link that
// the path leads through, and no other user can write to any of these. A sticky directory such as
// /tmp may be on the way, since an entry of theirs is safe in it; at the end of the path it is
// refused, since others can add entries. A group may write where it is the owner's own: its only
// member is the owner, whose name it has.
//
// The error continues a sentence that begins with the path, names what has to be changed, and
// gives the command. It is that of the system if there is no such file.
func CheckPath(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	w := &walk{at: "/", rest: elements(abs)}
	for len(w.rest) > 0 {
		if err := w.step(); err != nil {
			return err
		}
	}
	info, err := os.Lstat(w.at)
	if err != nil {
		return err
	}
	return CheckInfo(w.at, info)
}

// walk follows a path as the kernel does, and checks what leads on.
type walk struct {
	at    string   // no link leads to it
	rest  []string // elements of the path from there
	links int
}

// step takes the next element.
func (w *walk) step() error {
	if err := checkAbove(w.at); err != nil {
		return err
	}
	name := w.rest[0]
	w.rest = w.rest[1:]
	next := filepath.Join(w.at, name) // with "..", the parent
	info, err := os.Lstat(next)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		w.at = next
		return nil
	}
	if w.links++; w.links > maxLinks {
		return &fs.PathError{Op: "open", Path: next, Err: syscall.ELOOP}
	}
	// In a sticky directory the owner of a link can put another in its place.
	if err := checkUser(next, info); err != nil {
		return fmt.Errorf("is reached by the link %s, which %w", next, err)
	}
	target, err := os.Readlink(next)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		w.at = "/"
	}
	w.rest = append(elements(target), w.rest...)
	return nil
}

// CheckInfo checks the file itself as CheckPath does, without the directories above it. The
// path is for the error.
func CheckInfo(path string, info fs.FileInfo) error {
	if err := checkMode(path, info, false); err != nil {
		return fmt.Errorf("can be changed by %w", err)
	}
	return checkUser(path, info)
}

// elements splits a path, and leaves out what means nothing.
func elements(path string) []string {
	var all []string
	for _, e := range strings.Split(path, string(filepath.Separator)) {
		if e != "" && e != "." {
			all = append(all, e)
		}
	}
	return all
}

// checkAbove checks a directory that the path leads through.
func checkAbove(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if err := checkMode(dir, info, true); err != nil {
		return fmt.Errorf("is below a directory that can be changed by %w", err)
	}
	if err := checkUser(dir, info); err != nil {
		return fmt.Errorf("is below a directory that %w", err)
	}
	return nil
}

// checkMode returns who else can write, and what to do about it.
func checkMode(path string, info fs.FileInfo, sticky bool) error {
	if sticky && info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	mode := info.Mode().Perm()
	if mode&0o002 != 0 {
		return fmt.Errorf("every user of this machine; run chmod o-w %s", path)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if mode&0o020 != 0 && ok && !isOwnGroup(int(stat.Uid), int(stat.Gid)) {
		return fmt.Errorf("the group %s, which is not its owner's own; run chmod g-w %s", groupName(int(stat.Gid)), path)
	}
	return nil
}

func checkUser(path string, info fs.FileInfo) error {
	uid, self := ownerOf(info), os.Geteuid()
	if uid < 0 || uid == 0 || uid == self {
		return nil
	}
	return fmt.Errorf("belongs to user %d, who could change it; it must belong to root or to the user that runs catena (%d): run chown %d %s",
		uid, self, self, path)
}
