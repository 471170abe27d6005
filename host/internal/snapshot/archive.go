// Package snapshot saves what a host with an embedded etcd has into one file, and restores it.
//
// The file is a tar archive: snapshot.json says what it is, etcd.db is a snapshot as etcd's tools read it, pki/ has the
// authorities and keys of the cluster, and SHA256SUMS, at the end, has the digests of all of these as sha256sum checks them.
package snapshot

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/store"
)

// Manifest says what a snapshot is of.
type Manifest struct {
	// Format is the version of the format, 1.
	Format int       `json:"format"`
	Time   time.Time `json:"time"`
	// Cluster is its name in package join, "" if it has none.
	Cluster string `json:"cluster,omitempty"`
	// Release is that of Kubernetes.
	Release string         `json:"release"`
	Etcd    store.Contents `json:"etcd"`
}

const (
	format       = 1
	manifestName = "snapshot.json"
	databaseName = "etcd.db"
	keysDir      = "pki/"
	sumsName     = "SHA256SUMS"
	// maxSmall bounds the entries that are read into memory.
	maxSmall = 1 << 20
)

// archive writes a snapshot.
type archive struct {
	tar  *tar.Writer
	time time.Time
	sums bytes.Buffer
}

func (a *archive) add(name string, size int64, content io.Reader) error {
	err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: a.time, Format: tar.FormatPAX})
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(a.tar, sum), content); err != nil {
		return err
	}
	fmt.Fprintf(&a.sums, "%x  %s\n", sum.Sum(nil), name)
	return nil
}

func (a *archive) addFile(name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return a.add(name, info.Size(), f)
}

// write writes a snapshot of a database with keys, by the names of their files.
func write(out io.Writer, m Manifest, database string, keys map[string][]byte) error {
	a := &archive{tar: tar.NewWriter(out), time: m.Time}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := a.add(manifestName, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	if err := a.addFile(databaseName, database); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if err := a.add(keysDir+name, int64(len(keys[name])), bytes.NewReader(keys[name])); err != nil {
			return err
		}
	}
	sums := bytes.Clone(a.sums.Bytes())
	if err := a.add(sumsName, int64(len(sums)), bytes.NewReader(sums)); err != nil {
		return err
	}
	return a.tar.Close()
}

// contents is a snapshot that has been read.
type contents struct {
	Manifest
	keys map[string][]byte
	// database is the file that has the database.
	database string
}

// read reads a whole snapshot and checks it. The database goes into a file in a directory.
func read(file, dir string) (*contents, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := readArchive(tar.NewReader(f), filepath.Join(dir, databaseName))
	if err != nil {
		return nil, fmt.Errorf("%s is not a complete snapshot: %w", file, err)
	}
	return c, nil
}

func readArchive(in *tar.Reader, database string) (*contents, error) {
	c := &contents{keys: map[string][]byte{}, database: database}
	sums := map[string]string{}
	for {
		header, err := in.Next()
		if err != nil && len(sums) == 0 {
			return nil, fmt.Errorf("it is no tar archive: %w", err)
		}
		if err != nil {
			return nil, truncated(err)
		}
		if header.Name == sumsName {
			text, err := small(in)
			if err != nil {
				return nil, err
			}
			return c, checkSums(sums, string(text))
		}
		if sums[header.Name] != "" {
			return nil, fmt.Errorf("%s is in it twice", header.Name)
		}
		if sums[header.Name], err = c.take(header.Name, in); err != nil {
			return nil, err
		}
	}
}

// truncated returns what an error of an archive that has not come to its end means.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is truncated: %s is missing at its end", sumsName)
	}
	return err
}

// take reads an entry and returns its digest.
func (c *contents) take(name string, in io.Reader) (string, error) {
	if name == databaseName {
		return c.takeDatabase(in)
	}
	text, err := small(in)
	if err != nil {
		return "", err
	}
	switch dir, base := path.Split(name); {
	case name == manifestName:
		err = c.takeManifest(text)
	case dir == keysDir:
		c.keys[base] = text
	default:
		err = fmt.Errorf("%q does not belong into it", name)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

func (c *contents) takeManifest(text []byte) error {
	if err := json.Unmarshal(text, &c.Manifest); err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	if c.Format != format {
		return fmt.Errorf("its format is %d, and this catena reads format %d: use the catena that has saved it, or a newer one", c.Format, format)
	}
	return nil
}

func (c *contents) takeDatabase(in io.Reader) (string, error) {
	f, err := os.OpenFile(c.database, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), in)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(truncatedOr(err), f.Close())
}

func truncatedOr(err error) error {
	if err == nil {
		return nil
	}
	return truncated(err)
}

func small(in io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxSmall+1))
	if err == nil && len(text) > maxSmall {
		err = errors.New("an entry is too large")
	}
	return text, truncatedOr(err)
}

// checkSums compares the digests of what was read, by name, with those in the archive.
func checkSums(got map[string]string, text string) error {
	want := map[string]string{}
	for line := range strings.Lines(text) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	for _, name := range []string{manifestName, databaseName} {
		if got[name] == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			return fmt.Errorf("%s is damaged: its sha256 is %s, and %s has %q", name, got[name], sumsName, want[name])
		}
	}
	for name := range want {
		if got[name] == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}
