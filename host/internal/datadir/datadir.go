// Package datadir names the files in the data directory, and the directories that its
// sockets may be in. It is shared by the server, which creates them, and by the commands
// that look for them.
package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// PKI returns the directory of the certificates and keys of the server.
func PKI(dir string) string { return filepath.Join(dir, "pki") }

// AdminKubeconfig returns the kubeconfig of the server's administrator.
func AdminKubeconfig(dir string) string { return filepath.Join(dir, "admin.kubeconfig") }

// Dev returns the directory of the binaries that "catena dev" builds.
func Dev(dir string) string { return filepath.Join(dir, "dev") }

// Runtime returns the directories that may have the sockets, in the order in which they
// are tried: dir alone if it is not empty, or else DATA_DIR/run and, where that is too
// deep for the paths of Unix sockets, a directory with a short name in XDG_RUNTIME_DIR or
// the directory for temporary files.
func Runtime(dir, dataDir string) ([]string, error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("runtimeDir: %w", err)
		}
		return []string{abs}, nil
	}
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("dataDir: %w", err)
	}
	return []string{filepath.Join(abs, "run"), shortRuntime(abs)}, nil
}

// shortRuntime returns a directory for this data directory alone, however deep that is.
func shortRuntime(dataDir string) string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = os.TempDir()
	}
	sum := sha256.Sum256([]byte(dataDir))
	return filepath.Join(base, fmt.Sprintf("catena-%d-%s", os.Getuid(), hex.EncodeToString(sum[:5])))
}
