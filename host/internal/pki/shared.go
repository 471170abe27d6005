package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// shared are the files that all hosts of a cluster have in common: the authorities, and the keys of service account
// tokens. All others are made from them.
func (f Files) shared() []string {
	return []string{f.CA, f.CAKey, f.FrontProxyCA, f.FrontProxyCAKey, f.ServiceAccountKey, f.ServiceAccountPublicKey}
}

// ReadShared returns the files of a directory that all hosts of a cluster have in common, by their names.
func ReadShared(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, path := range FilesIn(dir).shared() {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s does not exist: it is made when the server starts for the first time", path)
		}
		if err != nil {
			return nil, err
		}
		files[filepath.Base(path)] = data
	}
	return files, nil
}

// CheckShared returns an error if a directory has other files than these, so that WriteShared would replace them, or if the
// files are not those that ReadShared returns.
func CheckShared(dir string, files map[string][]byte) error {
	paths := FilesIn(dir).shared()
	for name := range files {
		if !slices.Contains(paths, filepath.Join(dir, name)) {
			return fmt.Errorf("%q is not the name of a file with keys", name)
		}
	}
	for _, path := range paths {
		want, ok := files[filepath.Base(path)]
		if !ok {
			return fmt.Errorf("%s is missing", filepath.Base(path))
		}
		switch has, err := os.ReadFile(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !bytes.Equal(has, want):
			return fmt.Errorf("%s is another than that of the cluster: move %s away", path, dir)
		}
	}
	return nil
}

// WriteShared writes the files into a directory, unless CheckShared refuses that. An interrupted call can be repeated.
func WriteShared(dir string, files map[string][]byte) error {
	if err := CheckShared(dir, files); err != nil {
		return err
	}
	if err := privateDir(dir); err != nil {
		return err
	}
	for _, path := range FilesIn(dir).shared() {
		if err := writeFile(path, files[filepath.Base(path)]); err != nil {
			return err
		}
	}
	return nil
}
