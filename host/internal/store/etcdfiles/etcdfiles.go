// Package etcdfiles reads the files of an etcd member that does not run, or not yet: whether they are damaged, and which entries they have.
package etcdfiles

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
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/catena-dev/catena/host/internal/panics"
)

// The lengths of the keys of etcd's objects: two numbers with a line between them, and a mark of what is deleted.
const (
	revisionLength  = 17
	tombstoneLength = revisionLength + 1
)

// Check reads all keys of the database of a member's directory, which etcd does in a way that ends the process if a
// page is damaged. It returns the index of the last entry of the write-ahead log that is in it; 0 if there is no
// database.
func Check(dir string) (applied uint64, err error) {
	file := filepath.Join(dir, "member", "snap", "db")
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

// LastEntry returns the index of the last entry of the write-ahead log of a member's directory, which may be in use.
func LastEntry(dir string) (uint64, error) {
	logDir := filepath.Join(dir, "member", "wal")
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), logDir)
	if err != nil {
		return 0, err
	}
	from := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		from = snapshots[len(snapshots)-1]
	}
	w, err := wal.OpenForRead(zap.NewNop(), logDir, from)
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
