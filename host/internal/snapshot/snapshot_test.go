package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/store"
)

// site is a data directory, as a host has it.
type site struct{ Source }

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "snap") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	return &site{Source{
		DataDir: data, Prefix: "/registry", Release: "v1.37.0",
		Storage: store.Options{Dir: data, Socket: filepath.Join(dir, "etcd.sock")},
	}}
}

// run opens the store while f runs.
func (s *site) run(t *testing.T, f func(*clientv3.Client)) {
	t.Helper()
	opened, err := store.Open(t.Context(), s.Storage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := opened.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := pki.Ensure(pki.Options{Dir: datadir.PKI(s.DataDir)}); err != nil {
		t.Fatal(err)
	}
	client, err := s.Storage.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	f(client)
}

// put writes a number of keys, and returns the revision of the last.
func put(t *testing.T, client *clientv3.Client, prefix string, n int) int64 {
	t.Helper()
	var revision int64
	for i := range n {
		resp, err := client.Put(t.Context(), fmt.Sprint(prefix, i), strings.Repeat("v", 1000))
		if err != nil {
			t.Fatal(err)
		}
		revision = resp.Header.Revision
	}
	return revision
}

// keysOf returns the keys in the store, and the revision.
func keysOf(t *testing.T, client *clientv3.Client) ([]string, int64) {
	t.Helper()
	resp, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, resp.Header.Revision
}

// saved returns a snapshot of a new site with ten keys.
func saved(t *testing.T) (s *site, file string, m Manifest) {
	t.Helper()
	s = newSite(t)
	file = filepath.Join(t.TempDir(), "s.tar")
	s.run(t, func(client *clientv3.Client) {
		put(t, client, "a", 10)
		var err error
		if m, err = Save(t.Context(), s.Source, file); err != nil {
			t.Fatal(err)
		}
		put(t, client, "later", 5)
	})
	return s, file, m
}

func sharedFiles(t *testing.T, s *site) map[string][]byte {
	t.Helper()
	files, err := pki.ReadShared(datadir.PKI(s.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSnapshotOfADestroyedDirectory(t *testing.T) {
	t.Parallel()
	s, file, m := saved(t)
	if m.Etcd.Keys != 10 || m.Etcd.Revision != 11 || m.Release != "v1.37.0" {
		t.Errorf("manifest is %+v", m)
	}
	if got, err := Read(file); err != nil || got != m {
		t.Errorf("Read is %+v, %v, want %+v", got, err, m)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file is %v, %v, want one that only its owner can read", info.Mode(), err)
	}
	keys := sharedFiles(t, s)
	if err := os.RemoveAll(s.DataDir); err != nil {
		t.Fatal(err)
	}
	r, err := Restore(s.DataDir, file, false)
	if err != nil || r.Manifest != m || r.Replaced != "" {
		t.Fatalf("restored %+v, %v", r, err)
	}
	s.run(t, func(client *clientv3.Client) {
		got, revision := keysOf(t, client)
		if len(got) != 10 || revision <= 16 {
			t.Errorf("after the restore: %d keys at revision %d, want 10 keys at a revision above all that clients have seen", len(got), revision)
		}
		_, err := client.Get(t.Context(), "a0", clientv3.WithRev(10))
		if err == nil || !strings.Contains(err.Error(), "compacted") {
			t.Errorf("read at an old revision: %v, want that it is compacted", err)
		}
	})
	if !maps.EqualFunc(sharedFiles(t, s), keys, bytes.Equal) {
		t.Error("the keys of the cluster are others")
	}
}

// A directory that has data keeps them, unless they are replaced; then they are kept beside.
func TestRestoreOverData(t *testing.T) {
	t.Parallel()
	s, file, _ := saved(t)
	_, err := Restore(s.DataDir, file, false)
	if err == nil || !strings.Contains(err.Error(), "to revision 16: the snapshot, to revision 11, is older; --replace") {
		t.Fatalf("restore over newer data: %v", err)
	}
	s.run(t, func(client *clientv3.Client) {
		if got, _ := keysOf(t, client); len(got) != 15 {
			t.Errorf("a refused restore left %d keys, want 15", len(got))
		}
	})
	r, err := Restore(s.DataDir, file, true)
	if err != nil {
		t.Fatal(err)
	}
	if has, err := store.Data(r.Replaced); err != nil || has.Keys != 15 {
		t.Errorf("replaced data: %+v, %v", has, err)
	}
	s.run(t, func(client *clientv3.Client) {
		if got, _ := keysOf(t, client); len(got) != 10 {
			t.Errorf("%d keys, want those of the snapshot", len(got))
		}
	})
}

func TestRestoreOfAnotherCluster(t *testing.T) {
	t.Parallel()
	_, file, _ := saved(t)
	other := newSite(t)
	if _, err := pki.Ensure(pki.Options{Dir: datadir.PKI(other.DataDir)}); err != nil {
		t.Fatal(err)
	}
	keys := sharedFiles(t, other)
	_, err := Restore(other.DataDir, file, false)
	if err == nil || !strings.Contains(err.Error(), "of another cluster than the data directory") {
		t.Errorf("error is %v", err)
	}
	if !maps.EqualFunc(sharedFiles(t, other), keys, bytes.Equal) || store.HasData(other.DataDir) {
		t.Error("a refused restore changed the data directory")
	}
}

func TestRestoreWhileAHostRuns(t *testing.T) {
	t.Parallel()
	s, file, _ := saved(t)
	s.run(t, func(*clientv3.Client) {
		if _, err := Restore(s.DataDir, file, true); err == nil || !strings.Contains(err.Error(), "in use by") {
			t.Errorf("error is %v", err)
		}
	})
}

// Data that an interrupted restore has moved away are not replaced by an empty store.
func TestInterruptedRestore(t *testing.T) {
	t.Parallel()
	s, file, _ := saved(t)
	etcd := filepath.Join(s.DataDir, "etcd")
	if err := os.Rename(etcd, etcd+".restoring"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), s.Storage); err == nil || !strings.Contains(err.Error(), "interrupted: repeat catena snapshot restore") {
		t.Errorf("start after an interrupted restore: %v", err)
	}
	if _, err := Restore(s.DataDir, file, false); err != nil {
		t.Fatal(err)
	}
	s.run(t, func(client *clientv3.Client) {
		if got, _ := keysOf(t, client); len(got) != 10 {
			t.Errorf("%d keys, want those of the snapshot", len(got))
		}
	})
}

// A file that is cut off or changed anywhere is refused, and nothing is written.
func TestDamagedSnapshot(t *testing.T) {
	t.Parallel()
	_, file, _ := saved(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.LastIndex(whole, []byte(sumsName))
	damaged := filepath.Join(t.TempDir(), "damaged.tar")
	target := filepath.Join(t.TempDir(), "data")
	try := func(what string, text []byte) {
		t.Helper()
		if err := os.WriteFile(damaged, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(target, damaged, true)
		if err == nil || !strings.Contains(err.Error(), damaged) {
			t.Errorf("%s: %v", what, err)
		}
		left, err := os.ReadDir(target)
		if err != nil || len(left) > 1 { // the lock
			t.Errorf("%s: left %v, %v", what, left, err)
		}
	}
	for n := 0; n < end; n += end/40 + 1 {
		try(fmt.Sprintf("cut off after %d of %d bytes", n, len(whole)), whole[:n])
	}
	for _, entry := range []string{manifestName, databaseName, keysDir + "sa.key"} {
		changed := slices.Clone(whole)
		changed[bytes.Index(whole, []byte(entry))+512+1000%100] ^= 1 // in the contents after the header
		try("damaged "+entry, changed)
	}
	try("empty", nil)
	try("something else", bytes.Repeat([]byte("text\n"), 1000))
}

func FuzzRead(f *testing.F) {
	var archive bytes.Buffer
	database := filepath.Join(f.TempDir(), "db")
	if err := os.WriteFile(database, []byte("database"), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := write(&archive, Manifest{Format: format}, database, map[string][]byte{"ca.key": []byte("key")}); err != nil {
		f.Fatal(err)
	}
	f.Add(archive.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		file := filepath.Join(dir, "s.tar")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = read(file, dir) // does not panic
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 2 {
			t.Errorf("entries %v, %v", entries, err)
		}
	})
}
