package declared

import (
	"path/filepath"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/store"
)

// StoreOptions say which etcd a configuration means, and how to reach it: at the socket of a host that runs, or at one
// that is to be. The directories are absolute.
func StoreOptions(cfg *config.Config, dir, runtimeDir string) store.Options {
	c, socket := cfg.Store, filepath.Join(runtimeDir, guard.SecretName(storeSocket, ".sock"))
	if found, err := filepath.Glob(filepath.Join(runtimeDir, storeSocket+"-*.sock")); err == nil && len(found) == 1 {
		socket = found[0]
	}
	return store.Options{
		Dir: dir, Socket: socket, QuotaBytes: c.QuotaBytes,
		Endpoints: c.Endpoints, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, Revisions: new(store.Revisions),
	}
}

// storeSocket begins the name of etcd's socket. No stage has a name with a dot.
const storeSocket = "host.etcd"
