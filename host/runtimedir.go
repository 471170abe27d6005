package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/catena-dev/catena/host/internal/process"
)

// runtimeDir makes the folder for sockets and returns its absolute path. It is
// dir, or DATA_DIR/run if dir is empty; where that is too deep for the paths of
// Unix sockets, a folder with a short name in XDG_RUNTIME_DIR or the folder for
// temporary files. The caller holds the lock of the data folder.
func runtimeDir(dir, dataDir string, stages []string) (string, error) {
	choices, err := runtimeDirs(dir, dataDir)
	if err != nil {
		return "", err
	}
	var first error
	for _, path := range choices {
		err := process.PrepareRuntimeDir(path, stages)
		if err == nil {
			return path, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

// runtimeDirs are the folders that may be the runtime folder, in the order in which
// they are tried.
func runtimeDirs(dir, dataDir string) ([]string, error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("runtimeDir: %w", err)
		}
		return []string{abs}, nil
	}
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	return []string{filepath.Join(abs, "run"), shortRuntimeDir(abs)}, nil
}

// shortRuntimeDir is a folder of this data folder's own, however deep that lies.
func shortRuntimeDir(dataDir string) string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = os.TempDir()
	}
	sum := sha256.Sum256([]byte(dataDir))
	return filepath.Join(base, fmt.Sprintf("catena-%d-%s", os.Getuid(), hex.EncodeToString(sum[:5])))
}
