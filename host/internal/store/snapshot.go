package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	clientsnapshot "go.etcd.io/etcd/client/v3/snapshot"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/catena-dev/catena/host/internal/store/etcdfiles"
)

const (
	// dataName is the directory of the embedded server's data in the data directory.
	dataName = "etcd"
	// restoringName is that of data that are not complete yet.
	restoringName = "etcd.restoring"
)

// Contents is what a database of etcd has.
type Contents struct {
	// Revision is that of the last write.
	Revision int64 `json:"revision"`
	Keys     int   `json:"keys"`
}

// SaveSnapshot writes what the running embedded server has into a file, which appears complete or not at all. Etcd's own
// tools read it.
func SaveSnapshot(ctx context.Context, o Options, file string) (Contents, error) {
	if _, err := clientsnapshot.SaveWithVersion(ctx, zap.NewNop(), o.embeddedClient(), file); err != nil {
		return Contents{}, fmt.Errorf("save snapshot of etcd: %w", err)
	}
	return ReadSnapshot(file)
}

// ReadSnapshot checks the database in a file, and returns what is in it.
func ReadSnapshot(file string) (Contents, error) {
	status, err := snapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return Contents{}, fmt.Errorf("%s is not a database of etcd: %w", file, err)
	}
	return Contents{Revision: status.Revision, Keys: status.TotalKey}, nil
}

// DataDir returns where the data of an embedded server are in a data directory.
func DataDir(dir string) string { return filepath.Join(dir, dataName) }

// HasData reports whether the data directory has data of an embedded server.
func HasData(dir string) bool {
	_, err := os.Stat(DataDir(dir))
	return err == nil
}

// Data returns what the embedded server, which must not run, has in the data directory.
func Data(dir string) (Contents, error) {
	if _, err := etcdfiles.Check(DataDir(dir)); err != nil {
		return Contents{}, err
	}
	return ReadSnapshot(filepath.Join(DataDir(dir), "member", "snap", "db"))
}

// revisionBump is what a restored server adds to its revision, so that no revision that a client has seen before is used
// again. Etcd's documentation recommends it for Kubernetes, for a week of writes between snapshot and restore.
const revisionBump = 1e9

// PrepareRestore makes data of the embedded server from a snapshot, beside those in the data directory, whose lock the caller
// has. FinishRestore puts them in place.
func PrepareRestore(dir, file string) error {
	restoring := filepath.Join(dir, restoringName)
	if err := os.RemoveAll(restoring); err != nil {
		return err
	}
	member := embeddedConfig(restoring, Options{})
	var peers []string
	for _, u := range member.AdvertisePeerUrls {
		peers = append(peers, u.String())
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: restoring, Name: member.Name,
		PeerURLs: peers, InitialCluster: member.InitialCluster, InitialClusterToken: member.InitialClusterToken,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("restore etcd: %w", err), os.RemoveAll(restoring))
	}
	return os.Chmod(restoring, 0o700)
}

// FinishRestore makes what PrepareRestore has made the data of the embedded server, of which there must be none. Until it
// is called, Open refuses a directory without data.
func FinishRestore(dir string) error {
	if HasData(dir) {
		return fmt.Errorf("data directory %s has data already", dir)
	}
	return os.Rename(filepath.Join(dir, restoringName), DataDir(dir))
}

// checkRestored returns an error if the data of the embedded server were moved away for a restore that was interrupted.
func checkRestored(dir string) error {
	if HasData(dir) {
		return nil
	}
	restoring := filepath.Join(dir, restoringName)
	if _, err := os.Stat(restoring); err == nil {
		return fmt.Errorf("a restore into %s was interrupted: repeat catena snapshot restore, or remove %s to start with an empty store", dir, restoring)
	}
	return nil
}
