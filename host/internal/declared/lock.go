package declared

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/lockfile"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// Platform is what the entries of the lock file for this machine have.
const Platform = runtime.GOOS + "/" + runtime.GOARCH

// NeedsLock reports whether a file may be executed as a stage only if the lock file has it.
func NeedsLock(cfg *config.Config, stage, binary string) bool {
	inDir := func(dir string) bool {
		abs, err := filepath.Abs(dir)
		return err == nil && filepath.Dir(binary) == abs
	}
	return cfg.NeedsLock(stage) ||
		cfg.LocksOthers(stage) && slices.ContainsFunc(cfg.PluginDirs, inDir) && !process.IsOwn(binary)
}

// setLocked notes whether the file of a stage has to be in the lock file.
func setLocked(cfg *config.Config, spec *supervisor.Spec) {
	spec.Locked = NeedsLock(cfg, spec.Name, spec.Binary)
	spec.OwnProgram = !spec.Locked && cfg.LocksOthers(spec.Name) && process.IsOwn(spec.Binary)
}

// Approval returns what approves the file of a stage before it is executed: that the lock file
// has it. It is nil if the stage needs no lock.
func Approval(cfg *config.Config, stage, binary string) func(process.Contents) error {
	if !NeedsLock(cfg, stage, binary) {
		return nil
	}
	return func(c process.Contents) error { return CheckLock(cfg, stage, binary, c) }
}

// approvedDigest returns the digest with which the file of a stage may be executed: of its
// process.Contents if the stage is locked, and of the file alone, by read, otherwise.
func approvedDigest(cfg *config.Config, stage, binary string, read digestReader) (string, error) {
	digest, err := DigestOf(cfg, stage, binary, read)
	if err != nil || !NeedsLock(cfg, stage, binary) {
		return digest, err
	}
	return digest, CheckLock(cfg, stage, binary, process.Contents{SHA256: digest})
}

// digestReader returns the digest of a file: process.Digest, or the Of of process.Digests.
type digestReader = func(path string) (string, error)

// DigestOf returns the digest that the lock file would have to have of the file of a stage, by read if the stage needs
// no lock.
func DigestOf(cfg *config.Config, stage, binary string, read digestReader) (string, error) {
	if !NeedsLock(cfg, stage, binary) {
		digest, err := read(binary)
		if err != nil {
			return "", fmt.Errorf("stage %q: %w", stage, err)
		}
		return digest, nil
	}
	c, err := process.ReadContents(binary)
	if err != nil {
		return "", fmt.Errorf("stage %q: %w", stage, err)
	}
	return c.SHA256, nil
}

// CheckLock returns a *NotLockedError unless the lock file has the contents for the stage.
func CheckLock(cfg *config.Config, stage, binary string, c process.Contents) error {
	refused := &NotLockedError{
		Stage: stage, Binary: binary, SHA256: c.SHA256, LockFile: cfg.LockFile(), command: lockCommand(cfg, stage, binary),
	}
	if refused.LockFile == "" {
		return refused
	}
	lock, err := lockfile.Read(refused.LockFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		refused.missing = true
		return refused
	case err != nil:
		return fmt.Errorf("stage %q: %w", stage, err)
	}
	if refused.Locked = lock.Digests(stage, Platform); slices.Contains(refused.Locked, c.SHA256) {
		return nil
	}
	return refused
}

// checkLockedNeeds returns an error if a locked stage is not granted what it needs, as the lock file
// has it of its contents: nothing is executed to know that.
func checkLockedNeeds(cfg *config.Config, stage, binary, digest string) error {
	if !NeedsLock(cfg, stage, binary) {
		return nil
	}
	lock, err := lockfile.Read(cfg.LockFile())
	if err != nil {
		return fmt.Errorf("stage %q: %w", stage, err)
	}
	for _, e := range lock.Entries {
		if e.Stage == stage && e.Platform == Platform && e.SHA256 == digest {
			return Grants(cfg.Stages[stage]).CheckWords(stage, e.Needs)
		}
	}
	return nil
}

// lockCommand returns the command that would lock a file.
func lockCommand(cfg *config.Config, stage, binary string) string {
	words := []string{"catena", "lock", stage}
	if inPlace, err := filepath.Abs(BinaryPath(cfg, stage)); err != nil || binary != inPlace {
		words = append(words, "--binary", binary)
	}
	for _, file := range cfg.Files {
		words = append(words, "--config", file)
	}
	return strings.Join(words, " ")
}

// NotLockedError is why a file is not executed as a stage: the lock file does not have it.
type NotLockedError struct {
	Stage, Binary string
	// SHA256 is the digest of the file, and Locked are those that the lock file has for the stage.
	SHA256 string
	Locked []string
	// LockFile is empty if the configuration has no file beside which it could be.
	LockFile string

	missing bool // there is no lock file
	command string
}

func (e *NotLockedError) Error() string {
	text := fmt.Sprintf("stage %q: %s is not locked: its sha256 is %s", e.Stage, e.Binary, e.SHA256)
	switch {
	case e.LockFile == "":
		return text + ", and catena.lock is beside the file of --config, which is not given"
	case e.missing:
		text += fmt.Sprintf(", and there is no %s", e.LockFile)
	case len(e.Locked) == 0:
		text += fmt.Sprintf(", and %s has none for it on %s", e.LockFile, Platform)
	default:
		text += fmt.Sprintf(", and %s has %s", e.LockFile, strings.Join(e.Locked, ", "))
	}
	return text + "; if this file is meant, run " + e.command
}

// LockState changes whenever the lock file does; it is empty without a lock file.
func LockState(cfg *config.Config) string {
	info, err := os.Stat(cfg.LockFile())
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.ModTime(), info.Size())
}
