package process

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Digest returns the SHA-256 of a file in hexadecimal.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digest(f)
}

// Digests returns digests of files, and reads one that has several names once. Its zero value is ready for
// use, by any number of goroutines. The files are taken not to change meanwhile.
type Digests struct {
	mu   sync.Mutex
	read []*readDigest
}

type readDigest struct {
	file   os.FileInfo
	digest func() (string, error)
}

// Of is Digest.
func (d *Digests) Of(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return d.of(path, info)()
}

func (d *Digests) of(path string, info os.FileInfo) func() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.read {
		if os.SameFile(r.file, info) {
			return r.digest
		}
	}
	r := &readDigest{info, sync.OnceValues(func() (string, error) { return Digest(path) })}
	d.read = append(d.read, r)
	return r.digest
}

func digest(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checkDigest compares the open file with the digest that the configuration wants.
func checkDigest(f *os.File, want string) error {
	got, err := digest(section(f))
	if err != nil {
		return fmt.Errorf("plugin binary %s: sha256: %w", f.Name(), err)
	}
	if !strings.EqualFold(got, want) {
		return fmt.Errorf("plugin binary %s: its sha256 is %s, the configuration wants %s; install the right file, or correct sha256 if this one is meant",
			f.Name(), got, want)
	}
	return nil
}
