package store

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A client of a ReadOnly sees the whole store, and its changes, and changes nothing.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: filepath.Join(dir, "data"), Socket: filepath.Join(dir, "etcd.sock")}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	l, err := net.Listen("unix", filepath.Join(dir, "readonly.sock"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := ServeReadOnly(o, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	connect := func(socket string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop(), DialTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	whole, own := connect(o.Socket), connect(l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watched := own.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCreatedNotify())
	<-watched // it is there
	if _, err := whole.Put(ctx, "/registry/a", "1"); err != nil {
		t.Fatal(err)
	}
	if e := <-watched; len(e.Events) != 1 || string(e.Events[0].Kv.Key) != "/registry/a" {
		t.Errorf("%+v", e)
	}
	if keys := keysOf(t, own, "\x00", clientv3.WithFromKey()); len(keys) != 1 || keys[0] != "/registry/a" {
		t.Error(keys)
	}
	if resp, err := own.Txn(ctx).If(clientv3.Compare(clientv3.Version("/registry/a"), "=", 1)).Then(clientv3.OpGet("/registry/a")).Commit(); err != nil || !resp.Succeeded {
		t.Errorf("%v, %v", resp, err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if code := status.Code(err); code != codes.PermissionDenied && code != codes.Unimplemented {
			t.Errorf("%s: %v", what, err)
		}
	}
	put, remove := clientv3.OpPut("/registry/a", "2"), clientv3.OpDelete("/registry/a")
	_, err = own.Do(ctx, put)
	refused("put", err)
	_, err = own.Do(ctx, remove)
	refused("delete", err)
	for name, op := range map[string]clientv3.Op{"put": put, "delete": remove, "nested": clientv3.OpTxn(nil, []clientv3.Op{remove}, nil)} {
		_, err = own.Txn(ctx).Then(op).Commit()
		refused(name+" in a transaction", err)
		_, err = own.Txn(ctx).If(clientv3.Compare(clientv3.Version("/x"), ">", 0)).Else(clientv3.OpGet("/x"), op).Commit()
		refused(name+" in the other branch", err)
	}
	_, err = own.Compact(ctx, 1)
	refused("compact", err)
	_, err = own.Grant(ctx, 10)
	refused("lease", err)
	_, err = own.MemberList(ctx)
	refused("members", err)
	if resp, err := whole.Get(ctx, "/registry/a"); err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "1" {
		t.Errorf("%v, %v", resp, err)
	}
}
