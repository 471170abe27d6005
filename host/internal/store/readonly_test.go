package store

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A client of a ReadOnly sees the whole store, and its changes, and changes nothing.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	whole, own := clientsBeside(t, ServeReadOnly)
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
	_, err := own.Do(ctx, put)
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
