package store

import (
	"context"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// keyspaceClients returns a client of the whole store and one of its part below /own/.
func keyspaceClients(t *testing.T) (whole, own *clientv3.Client) {
	t.Helper()
	k := newOwnKeys(t, 0)
	return k.whole, k.own
}

// clientsBeside returns a client of the whole store and one of what is served beside it.
func clientsBeside(t *testing.T, serve func(Options, net.Listener) (*Server, error)) (whole, own *clientv3.Client) {
	t.Helper()
	o := openStore(t, 0)
	return connectTo(t, o.Socket), serveBeside(t, o, "own", serve)
}

func openStore(t *testing.T, quota int64) Options {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: filepath.Join(dir, "data"), Socket: filepath.Join(dir, "etcd.sock"), QuotaBytes: quota}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return o
}

// serveBeside returns a client of what is served at a socket of that name.
func serveBeside(t *testing.T, o Options, name string, serve func(Options, net.Listener) (*Server, error)) *clientv3.Client {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(filepath.Dir(o.Socket), name+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := serve(o, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return connectTo(t, l.Addr().String())
}

func connectTo(t *testing.T, socket string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop(), DialTimeout: time.Minute, MaxCallSendMsgSize: math.MaxInt32,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func keysOf(t *testing.T, c *clientv3.Client, key string, opts ...clientv3.OpOption) []string {
	t.Helper()
	resp, err := c.Get(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// A client sees its own keys, without the prefix, and cannot reach any other.
func TestKeyspace(t *testing.T) {
	t.Parallel()
	whole, own := keyspaceClients(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, key := range []string{"/own", "/own0", "/own.", "/registry/secrets/a", "/zzz", "\x01"} {
		if _, err := whole.Put(ctx, key, "not yours"); err != nil {
			t.Fatal(err)
		}
	}
	others := keysOf(t, whole, "\x00", clientv3.WithFromKey())

	watch := own.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithPrevKV())
	if _, err := own.Put(ctx, "/registry/a", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Put(ctx, "/registry/b", "2"); err != nil {
		t.Fatal(err)
	}
	txn, err := own.Txn(ctx).If(clientv3.Compare(clientv3.Value("/registry/a"), "=", "1")).
		Then(clientv3.OpPut("/registry/a", "2", clientv3.WithPrevKV()), clientv3.OpPut("b", "3"), clientv3.OpGet("\x00", clientv3.WithFromKey())).
		Else(clientv3.OpGet("/registry/a")).Commit()
	if err != nil || !txn.Succeeded {
		t.Fatal(txn, err)
	}
	if put := txn.Responses[0].GetResponsePut(); string(put.PrevKv.Key) != "/registry/a" {
		t.Errorf("previous key is %q", put.PrevKv.Key)
	}
	if kvs := txn.Responses[2].GetResponseRange().Kvs; len(kvs) != 2 || string(kvs[0].Key) != "/registry/a" || string(kvs[1].Key) != "b" {
		t.Errorf("keys in the transaction are %v", kvs)
	}
	var seen []string
	for len(seen) < 3 {
		resp, ok := <-watch
		if !ok || resp.Err() != nil {
			t.Fatal(ok, resp.Err())
		}
		for _, e := range resp.Events {
			seen = append(seen, string(e.Kv.Key)+"="+string(e.Kv.Value))
		}
	}
	if want := []string{"/registry/a=1", "/registry/a=2", "b=3"}; !slices.Equal(seen, want) {
		t.Errorf("watched %q, want %q", seen, want)
	}
	if got := keysOf(t, own, "\x00", clientv3.WithFromKey()); !slices.Equal(got, []string{"/registry/a", "b"}) {
		t.Errorf("the client sees %q", got)
	}
	if got := keysOf(t, own, "/registry/", clientv3.WithPrefix()); !slices.Equal(got, []string{"/registry/a"}) {
		t.Errorf("below /registry/ are %q", got)
	}
	if got := keysOf(t, whole, "/own/", clientv3.WithPrefix()); !slices.Equal(got, []string{"/own//registry/a", "/own/b"}) {
		t.Errorf("the store has %q", got)
	}
	if _, err := own.Delete(ctx, "\x00", clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(t, whole, "\x00", clientv3.WithFromKey()); !slices.Equal(got, slices.Sorted(slices.Values(append(others, "/registry/b")))) {
		t.Errorf("after deleting all of its keys, the store has %q", got)
	}
}

// A watch reports its progress when it is asked to, as Kubernetes' watch cache needs it.
func TestKeyspaceReportsProgress(t *testing.T) {
	t.Parallel()
	_, own := keyspaceClients(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := own.Watch(ctx, "a", clientv3.WithCreatedNotify())
	<-watch
	put, err := own.Put(ctx, "b", "1")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if err := own.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		if resp := <-watch; resp.IsProgressNotify() && resp.Header.Revision >= put.Header.Revision {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("no progress")
		}
	}
}

// What is about the whole store is refused; leases work.
func TestKeyspaceRefuses(t *testing.T) {
	t.Parallel()
	whole, own := keyspaceClients(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := own.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Put(ctx, "a", "1", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Put(ctx, "secret", "1", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if ttl, err := own.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()); err != nil || ttl.TTL <= 0 || len(ttl.Keys) > 0 {
		t.Errorf("time to live: %v, %v", ttl, err)
	}
	if _, err := own.KeepAliveOnce(ctx, lease.ID); err != nil {
		t.Error(err)
	}
	if _, err := own.Status(ctx, own.Endpoints()[0]); err != nil {
		t.Error(err)
	}
	for what, call := range map[string]func() error{
		"compact":  func() error { _, err := own.Compact(ctx, 1); return err },
		"leases":   func() error { _, err := own.Leases(ctx); return err },
		"members":  func() error { _, err := own.MemberList(ctx); return err },
		"users":    func() error { _, err := own.UserList(ctx); return err },
		"alarms":   func() error { _, err := own.AlarmList(ctx); return err },
		"defrag":   func() error { _, err := own.Defragment(ctx, own.Endpoints()[0]); return err },
		"snapshot": func() error { return readSnapshot(ctx, own) },
	} {
		if code := status.Code(call()); code != codes.PermissionDenied && code != codes.Unimplemented {
			t.Errorf("%s: %v", what, call())
		}
	}
}

func readSnapshot(ctx context.Context, c *clientv3.Client) error {
	r, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.Read(make([]byte, 1))
	return err
}
