// Package lockfile reads and writes catena.lock: which files may be executed as stages.
package lockfile

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/printable"
)

// Name is the name of the file. It is beside the first configuration file.
const Name = "catena.lock"

const (
	apiVersion = "catena.dev/v1alpha1"
	kind       = "Lock"
	header     = "# Written by \"catena lock\": the files that Catena may execute as stages. Commit it, and review its changes.\n"
	// maxSize bounds what is read.
	maxSize = 4 << 20
)

// Entry is a file that may be executed as a stage. A stage can have more than one: one for
// each platform, and one for the file that it is going to be swapped to.
type Entry struct {
	Stage string `yaml:"stage"`
	// Platform is the operating system and the architecture of the machine that the entry was
	// made on, such as linux/amd64.
	Platform string `yaml:"platform"`
	// Version is that of the stage, as it describes itself.
	Version string `yaml:"version"`
	// SHA256 is the digest of what the stage brings, see process.Contents, in lower case.
	SHA256 string `yaml:"sha256"`
	// Needs are what the stage declares to need, sorted.
	Needs []string `yaml:"needs,flow"`
}

// Lock is the content of the file. The zero value has no entry.
type Lock struct {
	// Entries are sorted, and differ in stage, platform or digest.
	Entries []Entry
}

// New returns a lock with these entries. Of two for the same stage, platform and digest, the later
// one counts.
func New(entries ...Entry) Lock {
	var l Lock
	for _, e := range entries {
		e.Needs = slices.Compact(slices.Sorted(slices.Values(e.Needs)))
		i, there := slices.BinarySearchFunc(l.Entries, e, compare)
		if there {
			l.Entries[i] = e
		} else {
			l.Entries = slices.Insert(l.Entries, i, e)
		}
	}
	return l
}

func compare(a, b Entry) int {
	return cmp.Or(strings.Compare(a.Stage, b.Stage), strings.Compare(a.Platform, b.Platform), strings.Compare(a.SHA256, b.SHA256))
}

// Digests returns the digests that a stage may have on a platform.
func (l Lock) Digests(stage, platform string) []string {
	var all []string
	for _, e := range l.Entries {
		if e.Stage == stage && e.Platform == platform {
			all = append(all, e.SHA256)
		}
	}
	return all
}

// Delete returns the lock without the entries for which drop returns true.
func (l Lock) Delete(drop func(Entry) bool) Lock {
	return Lock{Entries: slices.DeleteFunc(slices.Clone(l.Entries), drop)}
}

// document is the file as YAML.
type document struct {
	APIVersion string  `yaml:"apiVersion"`
	Kind       string  `yaml:"kind"`
	Stages     []Entry `yaml:"stages"`
}

// Parse reads the content of the file, which is YAML or JSON. It is strict: a file with an
// unknown key, a malformed digest or two equal entries is an error.
func Parse(data []byte) (Lock, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var doc document
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return Lock{}, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Lock{}, errors.New("want one document, and nothing after it")
	}
	if doc.APIVersion != apiVersion || doc.Kind != kind {
		return Lock{}, fmt.Errorf("want apiVersion %s and kind %s, have %q and %q", apiVersion, kind, doc.APIVersion, doc.Kind)
	}
	for i, e := range doc.Stages {
		if err := e.validate(); err != nil {
			return Lock{}, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	l := New(doc.Stages...)
	if len(l.Entries) < len(doc.Stages) {
		return Lock{}, errors.New("two entries have the same stage, platform and sha256")
	}
	return l, nil
}

// maxText is how long a text of a stage may be.
const maxText = 4096

func (e Entry) validate() error {
	for _, text := range append([]string{e.Stage, e.Platform, e.Version}, e.Needs...) {
		if len(text) > maxText || !printable.Is(text) {
			return errors.New("a text is too long or has characters that cannot be printed")
		}
	}
	if e.Stage == "" || e.Platform == "" {
		return errors.New("stage or platform is missing")
	}
	if b, err := hex.DecodeString(e.SHA256); err != nil || len(b) != 32 || strings.ToLower(e.SHA256) != e.SHA256 {
		return fmt.Errorf("stage %q: sha256: want 64 hexadecimal digits in lower case, have %q", e.Stage, e.SHA256)
	}
	return nil
}

// Format returns the content of the file.
func (l Lock) Format() ([]byte, error) {
	doc := document{APIVersion: apiVersion, Kind: kind, Stages: slices.Clone(l.Entries)}
	for i := range doc.Stages {
		if doc.Stages[i].Needs == nil {
			doc.Stages[i].Needs = []string{}
		}
	}
	var out bytes.Buffer
	out.WriteString(header)
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(doc), enc.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Read reads the file. The error is fs.ErrNotExist if the file is missing. A file that another user
// can change is refused.
func Read(path string) (Lock, error) {
	if err := guard.CheckPath(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Lock{}, err
		}
		return Lock{}, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return Lock{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("is larger than %d MiB", maxSize>>20)
	}
	if err != nil {
		return Lock{}, fmt.Errorf("%s: %w", path, err)
	}
	l, err := Parse(data)
	if err != nil {
		return Lock{}, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// Write replaces the file in one step. What it writes can be read.
func (l Lock) Write(path string) error {
	data, err := l.Format()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, err := Parse(data); err != nil {
		return fmt.Errorf("%s: cannot be written: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+Name+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
