package support

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/printable"
)

// maxFiles is how many files of a directory are listed.
const maxFiles = 10000

// Files writes the names, sizes, modes and times of what is in a directory, and how much space there is.
func Files(dir string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		err := space(w, dir)
		count := 0
		walkErr := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				printable.Fprintln(w, err)
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return nil // it is gone
			}
			if count++; count > maxFiles {
				return fmt.Errorf("there are more than %d files", maxFiles)
			}
			_, err = printable.Fprintf(w, "%s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), path)
			return err
		})
		return errors.Join(err, walkErr)
	}
}

func space(w io.Writer, dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	size := uint64(fs.Bsize)
	_, err := fmt.Fprintf(w, "file system of %s: %d bytes, %d free, %d for this user; %d files, %d free\n\n",
		dir, fs.Blocks*size, fs.Bfree*size, fs.Bavail*size, fs.Files, fs.Ffree)
	return err
}

// Kernel writes what this machine is.
func Kernel(_ context.Context, w io.Writer) error {
	var u unix.Utsname
	err := unix.Uname(&u)
	for _, field := range [][]byte{u.Sysname[:], u.Release[:], u.Version[:], u.Machine[:]} {
		fmt.Fprintf(w, "%s ", unix.ByteSliceToString(field))
	}
	fmt.Fprintln(w)
	errs := []error{err}
	for _, file := range []string{
		"/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io",
		"/proc/self/limits", "/proc/self/cgroup",
		"/proc/sys/fs/file-nr", "/sys/fs/cgroup/cgroup.controllers", "/etc/os-release",
	} {
		errs = append(errs, copyFile(w, file))
	}
	return errors.Join(errs...)
}

// copyFile writes a file below a line with its name. One that does not exist on this machine is no error.
func copyFile(w io.Writer, file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	fmt.Fprintf(w, "== %s\n%s\n", file, text)
	return err
}

// Process writes what the kernel shows of a process, without its environment.
func Process(pid int) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		if _, err := os.Stat(dir); err != nil {
			return err
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		fmt.Fprintf(w, "== %s/cmdline\n", dir)
		for arg := range strings.SplitSeq(string(line), "\x00") {
			printable.Fprintln(w, arg)
		}
		errs := []error{err}
		for _, name := range []string{"status", "limits", "cgroup", "stat", "wchan", "io"} {
			errs = append(errs, copyFile(w, filepath.Join(dir, name)))
		}
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		kinds := map[string]int{}
		for _, fd := range fds {
			target, _ := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			kind, _, isKind := strings.Cut(target, ":")
			if !isKind {
				kind = "file"
			}
			kinds[printable.Line(kind)]++
		}
		threads, _ := os.ReadDir(filepath.Join(dir, "task"))
		fmt.Fprintf(w, "== open descriptors: %d %v\n== threads: %d\n", len(fds), kinds, len(threads))
		return errors.Join(append(errs, err)...)
	}
}

// Children returns the processes that a process has started.
func Children(pid int) []int {
	var all []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// Digests writes the SHA-256 of files.
func Digests(files []string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		var errs []error
		for _, file := range files {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f, err := os.Open(file)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			sum := sha256.New()
			_, err = io.Copy(sum, f)
			errs = append(errs, err, f.Close())
			printable.Fprintf(w, "%x  %s\n", sum.Sum(nil), file)
		}
		return errors.Join(errs...)
	}
}
