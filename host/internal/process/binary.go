package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// BinaryPrefix begins the file name of every plugin binary: catena-stage-NAME.
const BinaryPrefix = "catena-stage-"

// Binary is a plugin binary that may be started.
type Binary struct {
	// Name is the stage's name as the file name has it. It is the whole file name
	// if that does not begin with BinaryPrefix.
	Name string
	// Path is absolute.
	Path string
}

// Find returns the binary of a stage: the first file catena-stage-NAME in dirs.
// It fails if no directory has it, or if that file must not be started (see Check).
func Find(dirs []string, stage string) (Binary, error) {
	if stage == "" || strings.ContainsRune(stage, filepath.Separator) {
		return Binary{}, fmt.Errorf("stage %q: no file can have the name %q", stage, BinaryPrefix+stage)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, BinaryPrefix+stage)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b, err := Check(path)
		if err != nil {
			return Binary{}, fmt.Errorf("stage %q: %w", stage, err)
		}
		return b, nil
	}
	return Binary{}, fmt.Errorf("stage %q: no binary %s%s in %s", stage, BinaryPrefix, stage, describeDirs(dirs))
}

// describeDirs lists the plugins in dirs, for the error that a stage is in none of them.
func describeDirs(dirs []string) string {
	if len(dirs) == 0 {
		return "any directory: pluginDirs is empty"
	}
	var parts []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		names := stageNames(entries)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			parts = append(parts, dir+" (no such directory)")
		case err != nil:
			parts = append(parts, fmt.Sprintf("%s (%v)", dir, err))
		case len(names) == 0:
			parts = append(parts, dir+" (holds no plugin)")
		default:
			parts = append(parts, fmt.Sprintf("%s (holds %s)", dir, strings.Join(names, ", ")))
		}
	}
	return strings.Join(parts, ", nor in ")
}

func stageNames(entries []fs.DirEntry) []string {
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), BinaryPrefix); ok && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Found is one file of a plugin directory that has the name of a plugin binary.
type Found struct {
	Binary
	// SHA256 is the file's digest in hexadecimal, empty if the file cannot be read.
	SHA256 string
	// Refused is why the binary would not be started, nil if it would.
	Refused error
}

// Scan lists the plugin binaries in dirs, in the order of dirs and then of names,
// without starting any. The error names the directories that cannot be read; what the
// others hold is returned nevertheless.
func Scan(dirs []string) ([]Found, error) {
	var found []Found
	var errs []error
	first := map[string]string{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("plugin directory: %w", err))
			continue
		}
		for _, name := range stageNames(entries) {
			f := examine(filepath.Join(dir, BinaryPrefix+name), name)
			if other, taken := first[name]; taken && f.Refused == nil {
				f.Refused = fmt.Errorf("is shadowed by %s", other)
			} else if !taken {
				first[name] = f.Path
			}
			found = append(found, f)
		}
	}
	return slices.Clip(found), errors.Join(errs...)
}

func examine(path, name string) Found {
	f := Found{Binary: Binary{Name: name, Path: path}}
	b, err := Check(path)
	if err != nil {
		f.Refused = err
	} else {
		f.Binary = b
	}
	f.SHA256, _ = Digest(path) // what cannot be read is refused already
	return f
}

// IsOwn reports whether a file is the program of this process, what has taken its place, or a copy.
func IsOwn(path string) bool {
	own, err := os.Executable()
	if err != nil {
		return false
	}
	a, errA := os.Stat(own)
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && (os.SameFile(a, b) || a.Size() == b.Size() && sameContents(own, path))
}

func sameContents(a, b string) bool {
	left, errLeft := Digest(a)
	right, errRight := Digest(b)
	return errLeft == nil && errRight == nil && left == right
}

// Check checks that path may be started as a plugin: an executable file for this
// machine that only root and the user of this process can change or replace, see
// guard.CheckPath. Errors name the path and what to do.
func Check(path string) (Binary, error) {
	f, err := open(path)
	if err != nil {
		return Binary{}, err
	}
	name := strings.TrimPrefix(filepath.Base(f.Name()), BinaryPrefix)
	return Binary{Name: name, Path: f.Name()}, f.Close()
}

// open checks a binary as Check does and returns it open under its absolute path, so
// that what is started is the file that was checked, whatever its path names by then.
func open(path string) (*os.File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("plugin binary %s: %w", path, err)
	}
	f, err := openChecked(abs)
	if err != nil {
		return nil, fmt.Errorf("plugin binary %s: %w", abs, err)
	}
	return f, nil
}

func openChecked(path string) (*os.File, error) {
	// Stat before Open: opening a pipe or a device may block or have effects.
	if info, err := os.Stat(path); err != nil {
		return nil, statProblem(path, err)
	} else if err := checkRegular(info); err != nil {
		return nil, err
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("is not readable for this user; run chmod u+r %s, or start catena as its owner", path)
	} else if err != nil {
		return nil, err
	}
	if err := checkFile(f, path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func statProblem(path string, err error) error {
	if target, linkErr := os.Readlink(path); linkErr == nil && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("is a link to %s, which does not exist", target)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no such file")
	}
	return err
}
