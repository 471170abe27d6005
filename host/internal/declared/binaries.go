package declared

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// FindBinary returns the binary of a stage: the configured file, or what the plugin
// directories have.
func FindBinary(cfg *config.Config, stage string) (process.Binary, error) {
	path := cfg.Stages[stage].Binary
	if path == "" {
		b, err := process.Find(cfg.PluginDirs, stage)
		if err != nil {
			if slices.Contains(config.BuiltinStages(), stage) {
				err = fmt.Errorf("%w; binary: %s is the one in this program", err, config.BuiltinBinary)
			}
			return process.Binary{}, fmt.Errorf("%s: %w", cfg.Where("stages."+stage), err)
		}
		return b, nil
	}
	b, err := NamedBinary(stage, path)
	if err != nil {
		key := "stages." + stage + ".binary"
		return process.Binary{}, fmt.Errorf("%s: %s: %w", cfg.Where(key), key, err)
	}
	return b, nil
}

// NamedBinary returns what an operator names as the binary of a stage: a file, or config.BuiltinBinary for this
// program.
func NamedBinary(stage, binary string) (process.Binary, error) {
	if binary == config.BuiltinBinary {
		if all := config.BuiltinStages(); !slices.Contains(all, stage) {
			err := fmt.Errorf("stage %q is not in this program, which has %s: give a file instead of %s",
				stage, strings.Join(all, ", "), config.BuiltinBinary)
			return process.Binary{}, err
		}
		own, err := os.Executable()
		if err != nil {
			return process.Binary{}, fmt.Errorf("stage %q: find this program: %w", stage, err)
		}
		binary = own
	}
	b, err := process.Check(binary)
	b.Name = stage // the file may have another
	return b, err
}

// SetBinary makes a stage one of a binary that an operator names, whose digest must be sha256 unless that is empty.
func SetBinary(cfg *config.Config, spec *supervisor.Spec, binary, sha256 string) error {
	b, err := NamedBinary(spec.Name, binary)
	if err != nil {
		return err
	}
	spec.Binary = b.Path
	setLocked(cfg, spec)
	spec.Digest, err = swapDigest(cfg, spec.Name, b.Path, sha256)
	return err
}

// SetReplaced makes a stage one of a file that has taken the place of its binary, if it is approved with its digest.
func SetReplaced(cfg *config.Config, spec *supervisor.Spec, path, digest string) error {
	b, err := process.Check(path)
	if err == nil && NeedsLock(cfg, spec.Name, b.Path) {
		err = CheckLock(cfg, spec.Name, b.Path, process.Contents{SHA256: digest})
	}
	if err != nil {
		return err
	}
	spec.Binary, spec.Digest, spec.SHA256 = b.Path, digest, cfg.Stages[spec.Name].Sha256
	setLocked(cfg, spec)
	return nil
}

// swapDigest returns the digest of the binary that a stage is to be swapped to. That of a locked
// stage must be the one that the operator gives or in the lock file.
func swapDigest(cfg *config.Config, stage, binary, sha256 string) (string, error) {
	if sha256 == "" {
		return approvedDigest(cfg, stage, binary, process.Digest)
	}
	digest, err := DigestOf(cfg, stage, binary, process.Digest)
	if err == nil && !strings.EqualFold(digest, sha256) {
		err = fmt.Errorf("stage %q: %s: its sha256 is %s, --sha256 is %s", stage, binary, digest, sha256)
	}
	return digest, err
}

// CheckBinaries joins what is wrong with the binaries of all stages, whether or not they
// make a chain. It leaves out what another mistake keeps from being known.
func CheckBinaries(cfg *config.Config, attach Attachments) error {
	names := cfg.Order
	if names == nil {
		names = slices.Sorted(maps.Keys(cfg.Stages))
	}
	var errs []error
	var digests process.Digests
	for _, name := range names {
		unknown := cfg.Hides("stages."+name+".binary") || cfg.Stages[name].Binary == "" && cfg.Hides("pluginDirs")
		if unknown || attach[name] != "" {
			continue
		}
		b, err := FindBinary(cfg, name)
		if err == nil {
			_, err = located(cfg, name, b.Path, digests.Of)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// located is approvedDigest with an error that begins with the place of the stage.
func located(cfg *config.Config, stage, binary string, read digestReader) (string, error) {
	digest, err := approvedDigest(cfg, stage, binary, read)
	if err == nil {
		err = checkLockedNeeds(cfg, stage, binary, digest)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", cfg.Where("stages."+stage), err)
	}
	return digest, nil
}

// BinaryPath is where the binary of a stage is expected, whatever it is; empty if there is
// none, which may be so for a moment only.
func BinaryPath(cfg *config.Config, stage string) string {
	if path := cfg.Stages[stage].Binary; path != "" {
		return path
	}
	for _, dir := range cfg.PluginDirs {
		path := filepath.Join(dir, process.BinaryPrefix+stage)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// AddDigests notes the digests of the binaries of stages that are locked, which it checks, or of those that are not, to
// know them from later ones.
func AddDigests(cfg *config.Config, all []supervisor.Spec, locked bool) error {
	errs := make([]error, len(all))
	var digests process.Digests
	var wg sync.WaitGroup
	for i := range all {
		spec := &all[i]
		if spec.Attach != "" || spec.Locked != locked {
			continue
		}
		wg.Go(func() {
			errs[i] = panics.Call(func() (err error) {
				spec.Digest, err = located(cfg, spec.Name, spec.Binary, digests.Of)
				return err
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
