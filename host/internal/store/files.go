package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/catena-dev/catena/host/internal/panics"
)

// damaged adds to an error of the embedded server's files what helps: to one of the system, such as a full disk, something else does.
func damaged(dir string, err error) error {
	if errno := syscall.Errno(0); err == nil || errors.As(err, &errno) {
		return err
	}
	return fmt.Errorf("%w; put back %s as it was, or restore a backup: catena snapshot restore FILE --data-dir %s --replace", err, DataDir(dir), dir)
}

// expectedName is the file in the data directory that says that there are data of the embedded server.
const expectedName = "etcd.expected"

const expectedText = `This server has its objects in etcd, beside this file, and does not start without them: a mount may be missing.
Remove this file to start with an empty store.
`

// checkExpected returns an error if the data directory had data of the embedded server once, and has none.
func checkExpected(dir string) error {
	expected := filepath.Join(dir, expectedName)
	if _, err := os.Stat(expected); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, pattern := range []string{"wal/*.wal", "snap/db"} {
		if found, _ := filepath.Glob(filepath.Join(DataDir(dir), "member", pattern)); len(found) > 0 {
			return nil
		}
	}
	return fmt.Errorf("%w; or remove %s to start with an empty store", damaged(dir, fmt.Errorf("%s has no data, and has had some: is a mount missing?", DataDir(dir))), expected)
}

// expect has checkExpected look for data from now on.
func expect(dir string) error {
	expected := filepath.Join(dir, expectedName)
	if _, err := os.Stat(expected); err == nil {
		return nil
	}
	return os.WriteFile(expected, []byte(expectedText), 0o600)
}

// The lengths of the keys of etcd's objects: two numbers with a line between them, and a mark of what is deleted.
const (
	revisionLength  = 17
	tombstoneLength = revisionLength + 1
)

// checkDatabase reads all keys of etcd's database, which etcd does in a way that ends the process if a page is damaged. It returns the
// index of the last entry of the write-ahead log that is in it; 0 if there is no database.
func checkDatabase(etcdDir string) (applied uint64, err error) {
	file := filepath.Join(etcdDir, "member", "snap", "db")
	if info, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return 0, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the database %s: %w", file, err)
		}
	}()
	defer panics.Recover(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a file that is cut off is read beyond its end
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second, NoStatistics: true})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			var last []byte
			return b.ForEach(func(k, v []byte) error {
				if last != nil && bytes.Compare(last, k) >= 0 {
					return fmt.Errorf("keys of %s are not in order", name)
				}
				last = k
				if string(name) == "key" && len(k) != revisionLength && len(k) != tombstoneLength {
					return fmt.Errorf("%x is no revision", k)
				}
				if string(name) == "meta" && string(k) == "consistent_index" && len(v) == 8 {
					applied = binary.BigEndian.Uint64(v)
				}
				return nil
			})
		})
	})
	return applied, err
}

// lastEntry returns the index of the last entry of etcd's write-ahead log, which may be in use.
func lastEntry(etcdDir string) (uint64, error) {
	dir := filepath.Join(etcdDir, "member", "wal")
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		return 0, err
	}
	from := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		from = snapshots[len(snapshots)-1]
	}
	w, err := wal.OpenForRead(zap.NewNop(), dir, from)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	_, _, entries, err := w.ReadAll()
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	if len(entries) == 0 {
		return from.GetIndex(), nil
	}
	return entries[len(entries)-1].GetIndex(), nil
}

const (
	// logCheck is how often a server that does not become ready looks at its log.
	logCheck = 5 * time.Second
	// fewEntries is by how many entries a log may lack what is in the database: the server writes as many of its own, one with
	// each attempt to become ready, and then goes on. It has logPatience for that.
	fewEntries  = 20
	logPatience = 30 * time.Second
)

// checkLog returns an error if the write-ahead log ends before what is in the database: the server does not become ready then, since
// it takes what comes for what it has.
func checkLog(etcdDir string, applied uint64, waited time.Duration) error {
	last, err := lastEntry(etcdDir)
	if err != nil || last >= applied || applied-last <= fewEntries && waited < logPatience {
		return nil // an error may be that of a file that is being written
	}
	return fmt.Errorf("its write-ahead log ends with entry %d, and its database has entry %d: the log is damaged, incomplete or older", last, applied)
}
