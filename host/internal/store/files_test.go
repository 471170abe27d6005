package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/store/etcdfiles"
)

// written makes a data directory with keys. Copies of it are damaged.
func written(t *testing.T, puts int, value string) string {
	t.Helper()
	dir := newDir(t)
	put(t, dir, puts, value)
	return dir
}

// put starts the store in a directory, writes to it, and ends it.
func put(t *testing.T, dir string, puts int, value string) {
	t.Helper()
	s, err := Open(t.Context(), optionsFor(dir))
	if err != nil {
		t.Fatal(err)
	}
	client, err := dialStore(optionsFor(dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := range puts {
		if _, err := client.Put(t.Context(), fmt.Sprintf("key-%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(client.Close(), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// copied returns a copy of a data directory.
func copied(t *testing.T, from string) string {
	t.Helper()
	dir := newDir(t)
	if err := os.CopyFS(DataDir(dir), os.DirFS(DataDir(from))); err != nil {
		t.Fatal(err)
	}
	if err := expect(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// opened opens the store of a directory in a process of its own, and returns what that has printed, and its exit code.
func opened(t *testing.T, dir string) (string, int) {
	t.Helper()
	cmd := child("hold", dir)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Where files of etcd are missing, damaged or of another time, the start ends with one error that says what to do.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	base := written(t, 100, strings.Repeat("x", 10_000))
	change := func(path string, f func(text []byte) []byte) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, f(text), 0o600)
	}
	const wal, db = "wal/0000000000000000-0000000000000000.wal", "snap/db"
	for name, tc := range map[string]struct {
		damage func(member string) error
		want   string
	}{
		"a log that is cut off": {func(m string) error {
			return change(filepath.Join(m, wal), func(text []byte) []byte { return text[:20_000] })
		}, "its write-ahead log ends with entry "},
		"no log": {func(m string) error { return os.RemoveAll(filepath.Join(m, "wal")) }, "its write-ahead log ends with entry "},
		"an empty log": {func(m string) error {
			return change(filepath.Join(m, wal), func([]byte) []byte { return nil })
		}, "panic: "},
		"a log with other bytes": {func(m string) error {
			return change(filepath.Join(m, wal), func(text []byte) []byte { return append(text[:200_000:200_000], bytes.Repeat([]byte{7}, 5000)...) })
		}, "etcd in "},
		"a database that is cut off": {func(m string) error {
			return change(filepath.Join(m, db), func(text []byte) []byte { return text[:40_000] })
		}, "database "},
		"a database without its first pages": {func(m string) error {
			return change(filepath.Join(m, db), func(text []byte) []byte { return append(make([]byte, 8192), text[8192:]...) })
		}, "database "},
		"a database of something else": {func(m string) error {
			return change(filepath.Join(m, db), func([]byte) []byte { return bytes.Repeat([]byte("text"), 10_000) })
		}, "database "},
		"nothing":            {func(m string) error { return os.RemoveAll(filepath.Dir(m)) }, "has no data, and has had some: is a mount missing?"},
		"an empty directory": {func(m string) error { return os.RemoveAll(m) }, "has no data, and has had some: is a mount missing?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copied(t, base)
			if err := tc.damage(filepath.Join(DataDir(dir), "member")); err != nil {
				t.Fatal(err)
			}
			out, code := opened(t, dir)
			if code != 1 || !strings.Contains(out, tc.want) || !strings.Contains(out, "catena snapshot restore FILE --data-dir "+dir) || strings.Contains(out, "goroutine") {
				t.Errorf("exit code %d, printed: %s", code, out)
			}
		})
	}
}

// A log that lacks a few entries of the database, as after a loss of power with a disk that lies, does not keep the server from starting.
func TestLogLacksFewEntries(t *testing.T) {
	t.Parallel()
	dir := written(t, 10, "value")
	log := filepath.Join(DataDir(dir), "member", "wal")
	older := filepath.Join(t.TempDir(), "wal")
	if err := os.CopyFS(older, os.DirFS(log)); err != nil {
		t.Fatal(err)
	}
	put(t, dir, 3, "newer") // key-2 is the last
	if err := errors.Join(os.RemoveAll(log), os.CopyFS(log, os.DirFS(older))); err != nil {
		t.Fatal(err)
	}
	last, err := etcdfiles.LastEntry(DataDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	applied, err := etcdfiles.Check(DataDir(dir))
	if err != nil || last >= applied {
		t.Fatalf("the log ends with entry %d, the database has %d, %v", last, applied, err)
	}
	s, err := Open(t.Context(), optionsFor(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	client, err := dialStore(optionsFor(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.Get(t.Context(), "key-2", clientv3.WithLimit(1))
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "newer" {
		t.Errorf("%v, %v", got, err)
	}
}

// Whatever page of the database is damaged, and however: the process ends by itself, with an error if it cannot serve, and does not crash.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	base := written(t, 200, strings.Repeat("x", 2000))
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	refused := 0
	for range 24 {
		dir := copied(t, base)
		file := filepath.Join(DataDir(dir), "member", "snap", "db")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(text, "\x00")) / 4096
		page := random.IntN(used) * 4096
		part := text[page : page+4096]
		how := []string{"zeros", "noise", "another page"}[random.IntN(3)]
		switch how {
		case "zeros":
			clear(part)
		case "noise":
			for i := range part {
				part[i] = byte(random.Uint32())
			}
		case "another page":
			copy(part, text[random.IntN(used)*4096:])
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, code := opened(t, dir)
		if code > 1 || code < 0 || strings.Contains(out, "goroutine") {
			t.Errorf("seed %d, page %d of %d is %s: exit code %d\n%.3000s", seed, page/4096, used, how, code, out)
		}
		if code == 1 {
			refused++
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Errorf("seed %d: no damage was noticed", seed)
	}
}
