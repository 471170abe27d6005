package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/store"
)

// dataDir is the data directory of a server that is started as kube-apiserver is, locked.
type dataDir struct {
	path string
	lock *store.DirLock
	// temporary is set if it is removed in the end.
	temporary bool
}

// openDataDir locks the data directory. kube-apiserver needs none with an etcd of its own: several run on a machine, as
// any user. So one that was not asked for and has nothing to keep may be another one.
func (k *kubeAPIServer) openDataDir(log hclog.Logger) (*dataDir, error) {
	d := &dataDir{path: k.dataDir}
	var err error
	if d.path == "" {
		d.path = filepath.Join(k.line.CertDir(), "catena")
		err = os.MkdirAll(k.line.CertDir(), 0o755) // as kube-apiserver makes it
	}
	if err == nil {
		d.lock, err = store.LockDir(d.path)
	}
	if err == nil || k.dataDir != "" || k.line.EmbedsEtcd() {
		return d, err
	}
	reason := err
	if d.path, err = os.MkdirTemp("", "catena-"); err != nil {
		return nil, fmt.Errorf("there is no data directory: name one by --catena-data-dir: %w", errors.Join(reason, err))
	}
	d.temporary = true
	if d.lock, err = store.LockDir(d.path); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.path))
	}
	log.Info("the data directory is one for temporary files; --catena-data-dir names another", "dir", d.path, "reason", reason)
	return d, nil
}

// close unlocks the directory.
func (d *dataDir) close() error {
	err := d.lock.Release()
	if d.temporary {
		err = errors.Join(err, os.RemoveAll(d.path))
	}
	return err
}
