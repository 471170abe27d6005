package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// source is what is mounted at the path of an entry.
type source struct {
	entry
	fd  int  // of a mount that is attached nowhere
	dir bool // whether it is a directory
}

// maxFiles is an option of directories in memory: the kernel has memory for each file, which is that of no process.
func maxFiles() string { return "nr_inodes=" + strconv.Itoa(bounds.MemoryFiles) }

// enterView makes the view the root of this process. All that is shown is opened first, by the user
// of the host, then this process becomes another, and then nothing of the old root is needed.
func enterView(l *launch) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	var sources []source
	for _, e := range l.View {
		s, err := openSource(e)
		if e.Optional && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
		sources = append(sources, s)
	}
	if err := become(l.Become); err != nil {
		return err
	}
	proc, err := newMount("proc", 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errProc, err)
	}
	root, err := newMount("tmpfs", 0, "mode=0755", "size=1m", maxFiles())
	if err != nil {
		return err
	}
	if err := changeRoot(root); err != nil {
		return err
	}
	for _, s := range sources {
		if err := s.attach(); err != nil {
			return fmt.Errorf("%s: %w", s.Path, err)
		}
	}
	if err := attachProc(proc); err != nil {
		return err
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	for _, s := range sources {
		if s.Access == partial {
			if err := setAttributes(unix.AT_FDCWD, s.Path, 0, unix.MOUNT_ATTR_RDONLY); err != nil {
				return fmt.Errorf("%s: %w", s.Path, err)
			}
		}
	}
	return setAttributes(root, "", unix.AT_EMPTY_PATH, unix.MOUNT_ATTR_RDONLY)
}

// openSource opens what an entry shows, as a copy of its mounts with the rights of the entry.
func openSource(e entry) (source, error) {
	s := source{entry: e, fd: -1}
	if e.Link != "" {
		return s, nil
	}
	info, err := os.Lstat(e.Path)
	if err != nil {
		return s, err
	}
	if e.Access == readOnly && info.Mode()&fs.ModeSymlink != 0 && filepath.Dir(e.Path) == "/" {
		s.Link, err = os.Readlink(e.Path)
		return s, err
	}
	if info, err = os.Stat(e.Path); err != nil {
		return s, err
	}
	s.dir = info.IsDir() || e.Access == private
	if e.Access == private || e.Access == partial {
		return s, nil
	}
	handle, err := unix.Open(e.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return s, err
	}
	defer unix.Close(handle)
	if real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(handle)); e.Real != "" && (err != nil || real != e.Real) {
		return s, fmt.Errorf("leads to %s now, and has led to %s (%v)", real, e.Real, err)
	}
	s.fd, err = unix.OpenTree(handle, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return s, fmt.Errorf("copy its mount: %w", err)
	}
	attributes := uint64(unix.MOUNT_ATTR_NOSUID)
	switch e.Access {
	case readOnly:
		attributes |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV
	case readWrite:
		attributes |= unix.MOUNT_ATTR_NODEV
	case device:
		attributes |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC
	}
	return s, setAttributes(s.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attributes)
}

// attach puts the source to its place in the new root.
func (s source) attach() error {
	if s.Link != "" {
		if err := os.MkdirAll(filepath.Dir(s.Path), 0o755); err != nil {
			return err
		}
		return os.Symlink(s.Link, s.Path)
	}
	if err := makePlace(s.Path, s.dir); err != nil {
		return err
	}
	fd := s.fd
	if fd < 0 {
		options := []string{"mode=0755", "size=1m", maxFiles()}
		if s.Access == private {
			options = []string{"mode=1777", "size=" + strconv.Itoa(bounds.MemoryDir), maxFiles()}
		}
		var err error
		if fd, err = newMount("tmpfs", 0, options...); err != nil {
			return err
		}
	}
	defer unix.Close(fd)
	return move(fd, s.Path)
}

// makePlace makes an empty file or directory to mount on, unless there is something.
func makePlace(path string, dir bool) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := path
	if !dir {
		parent = filepath.Dir(path)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil || dir {
		return err
	}
	return os.WriteFile(path, nil, 0o444)
}

// changeRoot makes a mount the root and the working directory, and lets the old root go.
func changeRoot(root int) error {
	if err := move(root, "/proc"); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	if err := unix.Fchdir(root); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	// The old root comes to lie on the new one, which is then beneath it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return os.Chdir("/")
}

// attachProc mounts the processes of the namespace, without a way to change the machine.
func attachProc(fd int) error {
	defer unix.Close(fd)
	if err := os.MkdirAll("/proc", 0o555); err != nil {
		return err
	}
	if err := move(fd, "/proc"); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"} {
		s, err := openSource(entry{Path: "/proc/" + name, Access: readOnly})
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.attach()
		}
		if err != nil {
			return fmt.Errorf("/proc/%s: %w", name, err)
		}
	}
	return nil
}

// newMount makes a file system that is attached nowhere.
func newMount(kind string, attributes int, options ...string) (int, error) {
	fsfd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("file system %s: %w", kind, err)
	}
	defer unix.Close(fsfd)
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		if err := unix.FsconfigSetString(fsfd, name, value); err != nil {
			return -1, fmt.Errorf("file system %s: %s: %w", kind, option, err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return -1, fmt.Errorf("file system %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, attributes|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, fmt.Errorf("file system %s: %w", kind, err)
	}
	return fd, nil
}

func move(fd int, path string) error {
	return os.NewSyscallError("move_mount", unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

func setAttributes(fd int, path string, flags uint, attributes uint64) error {
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(fd, path, flags, &unix.MountAttr{Attr_set: attributes}))
}
