package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/catena-dev/catena/host/internal/store/etcdfiles"
)

// damaged adds to an error of the embedded server's files what helps: to one of the system, such as a full disk, something else does.
func damaged(dir string, err error) error {
	if errno := syscall.Errno(0); err == nil || errors.As(err, &errno) {
		return err
	}
	return fmt.Errorf("%w; put back %s as it was, or restore a backup: catena snapshot restore FILE --data-dir %s --replace", err, DataDir(dir), dir)
}

// expectedName is the file in the data directory that shows that there are data of the embedded server.
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
	for _, name := range []string{"wal", "snap"} {
		if found, _ := os.ReadDir(filepath.Join(DataDir(dir), "member", name)); len(found) > 0 {
			return nil
		}
	}
	return fmt.Errorf("%w; or remove %s to start with an empty store",
		damaged(dir, fmt.Errorf("%s has no data, and has had some: is a mount missing?", DataDir(dir))), expected)
}

// expect has checkExpected look for data from now on.
func expect(dir string) error {
	expected := filepath.Join(dir, expectedName)
	if _, err := os.Stat(expected); err == nil {
		return nil
	}
	return os.WriteFile(expected, []byte(expectedText), 0o600)
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
	last, err := etcdfiles.LastEntry(etcdDir)
	if err != nil || last >= applied || applied-last <= fewEntries && waited < logPatience {
		return nil // an error may be that of a file that is being written
	}
	return fmt.Errorf("its write-ahead log ends with entry %d, and its database has entry %d: the log is damaged, incomplete or older", last, applied)
}
