package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	o.QuotaBytes = 1 << 20
	_, client := mustOpen(t, o)
	value := strings.Repeat("x", 512<<10)
	var err error
	// etcd compares with what it has committed to the database, every 100 ms.
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); {
		_, err = client.Put(t.Context(), "key", value)
	}
	if err == nil || !strings.Contains(err.Error(), "database space exceeded") {
		t.Errorf("writes beyond the quota of 1 MiB: error is %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	open := newDir(t)
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(newDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"no directory":      {Options{}, "no data directory"},
		"directory is file": {Options{Dir: file}, "create data directory"},
		"relative socket":   {Options{Dir: newDir(t), Socket: "etcd.sock"}, "not absolute"},
		"long socket":       {Options{Dir: newDir(t), Socket: "/" + strings.Repeat("x", 107)}, "has 108 bytes"},
		"socket directory":  {Options{Dir: newDir(t), Socket: "/nowhere/etcd.sock"}, "directory of the socket"},
		"open directory":    {Options{Dir: newDir(t), Socket: filepath.Join(open, "s")}, "open to other users"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Open(t.Context(), tc.options)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want it to contain %q", err, tc.want)
			}
		})
	}
}
