package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/join"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/store"
)

// Source is a running host.
type Source struct {
	// DataDir is its data directory.
	DataDir string
	// Storage reaches its embedded etcd.
	Storage store.Options
	// Prefix is that of the objects.
	Prefix string
	// Release is that of Kubernetes.
	Release string
}

// Save writes a snapshot of a running host into a file, which is replaced if it exists. It appears complete or not at
// all, and only its owner can read it: all secrets and keys of the cluster are in it.
func Save(ctx context.Context, s Source, file string) (Manifest, error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".snapshot-*") // mode 0700
	if err != nil {
		return Manifest{}, err
	}
	defer os.RemoveAll(dir)
	m := Manifest{Format: format, Time: time.Now().UTC().Truncate(time.Second), Release: s.Release}
	if m.Cluster, err = s.cluster(ctx); err != nil {
		return m, err
	}
	database := filepath.Join(dir, databaseName)
	if m.Etcd, err = store.SaveSnapshot(ctx, s.Storage, database); err != nil {
		return m, err
	}
	keys, err := pki.ReadShared(datadir.PKI(s.DataDir))
	if _, statErr := os.Stat(datadir.PKI(s.DataDir)); errors.Is(statErr, fs.ErrNotExist) {
		keys, err = nil, nil // they are in files that the operator has made
	}
	if err != nil {
		return m, err
	}
	return m, guard.WriteFile(file, func(out io.Writer) error { return write(out, m, database, keys) })
}

// cluster returns the name of the cluster.
func (s Source) cluster(ctx context.Context) (string, error) {
	client, err := s.Storage.Connect()
	if err != nil {
		return "", err
	}
	defer client.Close()
	record, err := join.Open(client, s.Prefix).Record(ctx)
	if errors.Is(err, join.ErrNoRecord) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return record.Cluster, nil
}

// Read checks a snapshot, all of it, and returns what it is of.
func Read(file string) (Manifest, error) {
	dir, err := os.MkdirTemp("", "catena-snapshot-*")
	if err != nil {
		return Manifest{}, err
	}
	defer os.RemoveAll(dir)
	c, err := readChecked(file, dir)
	if err != nil {
		return Manifest{}, err
	}
	return c.Manifest, nil
}

// readChecked also compares the database with the manifest.
func readChecked(file, dir string) (*contents, error) {
	c, err := read(file, dir)
	if err != nil {
		return nil, err
	}
	has, err := store.ReadSnapshot(c.database)
	if err != nil {
		return nil, err
	}
	if has != c.Etcd {
		return nil, fmt.Errorf("%s: %s has revision %d and %d keys, and %s says %d and %d", file, databaseName,
			has.Revision, has.Keys, manifestName, c.Etcd.Revision, c.Etcd.Keys)
	}
	return c, nil
}

// Restored says what a restore has done.
type Restored struct {
	Manifest
	// Replaced is where the earlier data are now, "" if there were none.
	Replaced string `json:"replaced,omitempty"`
}

// Restore makes a snapshot the contents of a data directory, on which no host may run. Data and keys that are there
// already are an error, unless replace is set: then they are moved into a directory beside them. The snapshot is checked
// before anything changes.
func Restore(dataDir, file string, replace bool) (r Restored, err error) {
	lock, err := store.LockDir(dataDir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	dir, err := os.MkdirTemp(dataDir, ".snapshot-*")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	c, err := readChecked(file, dir)
	if err != nil {
		return r, err
	}
	r.Manifest = c.Manifest
	full := c.checkEmpty(dataDir)
	if full != nil && !replace {
		return r, fmt.Errorf("%w; --replace moves what is there into a directory beside it, and deletes nothing", full)
	}
	if err := store.PrepareRestore(dataDir, c.database); err != nil {
		return r, err
	}
	// If it is interrupted from now on, the next start says so, and the restore can be repeated.
	if full != nil {
		if r.Replaced, err = moveAway(dataDir); err != nil {
			return r, err
		}
	}
	if len(c.keys) > 0 {
		if err := pki.WriteShared(datadir.PKI(dataDir), c.keys); err != nil {
			return r, err
		}
	}
	return r, store.FinishRestore(dataDir)
}

// checkEmpty returns an error if a data directory has data, or keys that are not those of the snapshot.
func (c *contents) checkEmpty(dataDir string) error {
	if len(c.keys) > 0 {
		if err := pki.CheckShared(datadir.PKI(dataDir), c.keys); err != nil {
			return fmt.Errorf("the snapshot is of another cluster than the data directory: %w", err)
		}
	}
	if !store.HasData(dataDir) {
		return nil
	}
	has, err := store.Data(dataDir)
	if err != nil {
		return fmt.Errorf("data directory %s has data already: %w", dataDir, err)
	}
	age := "older"
	if has.Revision <= c.Etcd.Revision {
		age = "not older"
	}
	return fmt.Errorf("data directory %s has data already, to revision %d: the snapshot, to revision %d, is %s",
		dataDir, has.Revision, c.Etcd.Revision, age)
}

// moveAway moves what a restore writes, and what was made with it, out of the way.
func moveAway(dataDir string) (string, error) {
	to, err := os.MkdirTemp(dataDir, "replaced-"+time.Now().UTC().Format("20060102-150405")+"-*")
	if err != nil {
		return "", err
	}
	for _, path := range []string{store.DataDir(dataDir), datadir.PKI(dataDir), datadir.AdminKubeconfig(dataDir)} {
		err := os.Rename(path, filepath.Join(to, filepath.Base(path)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return to, err
		}
	}
	return to, nil
}
