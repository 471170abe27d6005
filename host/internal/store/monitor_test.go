package store

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// watched is a monitor, and what it has reported, in order.
type watched struct {
	Monitor
	words       []string
	used, quota int64
}

func monitor(t *testing.T, o Options) *watched {
	t.Helper()
	w := &watched{}
	add := func(format string, args ...any) { w.words = append(w.words, fmt.Sprintf(format, args...)) }
	w.Monitor = Monitor{
		Silent:   func(error) { add("silent") },
		Responds: func(time.Duration) { add("responds") },
		Full:     func() { add("full") },
		Size:     func(used, quota int64) { w.used, w.quota = used, quota },
		Writable: func(time.Duration) { add("writable") },
		Restored: func(was, is int64) { add("restored from %d to %d", was, is) },
	}
	if err := w.connect(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Close() })
	return w
}

// expect lets the monitor look until it has reported exactly this so far: a client takes a while to connect again.
func (w *watched) expect(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		w.observe(t.Context())
		got := strings.Join(w.words, ", ")
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("reported was %q, want %q", got, want)
		}
	}
}

// startEtcdOn starts an etcd as an external one.
func startEtcdOn(t *testing.T, dir string) (stop func()) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ListenPeerUrls = nil
	client := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd.sock")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-etcd.Server.ReadyNotify()
	return etcd.Close
}

func TestMonitorOfAnExternalEtcd(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	o := Options{Dir: dir, Endpoints: []string{"unix://" + filepath.Join(dir, "etcd.sock")}}
	stop := startEtcdOn(t, dir)
	client, err := dialStore(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	put := func(n int) {
		t.Helper()
		for i := range n {
			if _, err := client.Put(t.Context(), "key", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(3)
	stop()
	backup := filepath.Join(dir, "backup")
	if err := os.CopyFS(backup, os.DirFS(filepath.Join(dir, "etcd"))); err != nil {
		t.Fatal(err)
	}
	stop = startEtcdOn(t, dir)
	put(7) // to revision 11
	m := monitor(t, o)
	m.expect(t, "")
	stop()
	m.expect(t, "silent")
	m.expect(t, "silent")
	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	defer startEtcdOn(t, dir)()
	m.expect(t, "silent, responds, restored from 11 to 4")
	m.expect(t, "silent, responds, restored from 11 to 4")
}

// A full embedded etcd accepts writes again when something has been deleted, without anybody's help.
func TestFullEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	o.QuotaBytes = 16 << 20
	_, client := mustOpen(t, o)
	m := monitor(t, o)
	value := strings.Repeat("v", 1<<20)
	n := 0
	// It is full for good once what fills it cannot be dropped.
	for m.words == nil || m.words[len(m.words)-1] != "full" {
		m.words = nil
		if n > 100 {
			t.Fatal("the quota has no effect")
		}
		if _, err := client.Put(t.Context(), fmt.Sprint("key", n), value); err != nil {
			m.observe(t.Context())
			continue
		}
		n++
	}
	for i := range n {
		if _, err := client.Delete(t.Context(), fmt.Sprint("key", i)); err != nil {
			t.Fatal(err)
		}
	}
	m.expect(t, "full, writable")
	if m.used < o.QuotaBytes || m.quota != o.QuotaBytes {
		t.Errorf("full, its file has %d bytes, of a quota of %d", m.used, m.quota)
	}
	if _, err := client.Put(t.Context(), "another", value); err != nil {
		t.Error(err)
	}
}
