package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// ownKeys are a store, and the keys of a stage's own below /own/.
type ownKeys struct {
	o          Options
	whole, own *clientv3.Client

	mu     sync.Mutex
	limits []string
}

// newOwnKeys opens a store; quota 0 is etcd's default.
func newOwnKeys(t *testing.T, quota int64) *ownKeys {
	t.Helper()
	k := &ownKeys{o: openStore(t, quota)}
	k.whole, k.own = connectTo(t, k.o.Socket), k.serve(t, "own")
	return k
}

// serve returns a client of another server of the keys, such as that of the host after a restart.
func (k *ownKeys) serve(t *testing.T, name string) *clientv3.Client {
	t.Helper()
	return serveBeside(t, k.o, name, func(o Options, l net.Listener) (*Server, error) {
		return ServeKeyspace(o, "/own/", l, func(limit string) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.limits = append(k.limits, limit)
		})
	})
}

// wantLimits checks which limits were reached since it was called last.
func (k *ownKeys) wantLimits(t *testing.T, want ...string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if got := slices.Compact(slices.Sorted(slices.Values(k.limits))); !slices.Equal(got, want) {
		t.Errorf("limits are %q, want %q", got, want)
	}
	k.limits = nil
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const (
	testQuota = 32 << 20
	testShare = testQuota / bounds.StoreShare
)

// fill puts values until there is no more room, and returns the size of those that there was room for.
func fill(ctx context.Context, t *testing.T, c *clientv3.Client, key func(i int) string) (size int) {
	t.Helper()
	value := strings.Repeat("v", 100<<10)
	for i := 0; ; i++ {
		_, err := c.Put(ctx, key(i), value)
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			return size
		case err != nil:
			t.Fatal(err)
		case size > 2*testShare:
			t.Fatalf("%d bytes are written, the share is %d", size, testShare)
		}
		size += len(value)
	}
}

// putAgain puts until there is room.
func putAgain(ctx context.Context, t *testing.T, c *clientv3.Client) {
	t.Helper()
	for {
		_, err := c.Put(ctx, "again", strings.Repeat("v", 100<<10))
		if err == nil {
			return
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) || ctx.Err() != nil {
			t.Fatal(err, ctx.Err())
		}
		select { // the server looks for a compaction once a second
		case <-ctx.Done():
		case <-time.After(refreshPause / 10):
		}
	}
}

func compact(ctx context.Context, t *testing.T, c *clientv3.Client) {
	t.Helper()
	now, err := c.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(ctx, now.Header.Revision); err != nil {
		t.Fatal(err)
	}
}

// Values that were replaced count until etcd is compacted. Others can write meanwhile.
func TestKeyspaceQuotaCountsHistory(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, testQuota)
	same := func(int) string { return "a" }
	if size := fill(ctx, t, k.own, same); size < testShare*9/10 {
		t.Errorf("there is room for %d bytes only", size)
	}
	k.wantLimits(t, LimitQuota)
	_, err := k.own.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("b", strings.Repeat("v", 200<<10))}, nil)).Commit()
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a transaction in a transaction: %v", err)
	}
	if _, err := k.whole.Put(ctx, "others", strings.Repeat("v", 200<<10)); err != nil {
		t.Error(err)
	}
	if _, err := k.own.Delete(ctx, "a"); err != nil {
		t.Error(err)
	}
	compact(ctx, t, k.whole)
	putAgain(ctx, t, k.own)
	if size := fill(ctx, t, k.own, same); size < testShare*8/10 {
		t.Errorf("after a compaction there is room for %d bytes only", size)
	}
}

// Values count as long as they are there, whichever server wrote them.
func TestKeyspaceQuotaCountsValues(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, testQuota)
	fill(ctx, t, k.own, func(i int) string { return fmt.Sprint("key", i) })
	compact(ctx, t, k.whole)
	again := k.serve(t, "again")
	for name, c := range map[string]*clientv3.Client{"the same server": k.own, "another server": again} {
		if size := fill(ctx, t, c, func(i int) string { return fmt.Sprint("more", i) }); size > testShare/20 {
			t.Errorf("%s has room for %d more bytes", name, size)
		}
	}
	if _, err := k.own.Delete(ctx, "", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	compact(ctx, t, k.whole)
	putAgain(ctx, t, k.own)
	putAgain(ctx, t, again)
}

// A transaction counts what it has written.
func TestKeyspaceQuotaCountsTheBranch(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, testQuota)
	for range 2 * testShare >> 20 {
		never := clientv3.Compare(clientv3.Version("none"), ">", 0)
		if _, err := k.own.Txn(ctx).If(never).Then(clientv3.OpPut("a", strings.Repeat("v", 1<<20))).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// The estimate is what etcd has: what was live at the latest compaction, and all that was written since.
func TestUsage(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	kv, seed := etcdserverpb.NewKVClient(k.whole.ActiveConnection()), rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	u := newUsage(newKeyspace("/own/"), kv, etcdserverpb.NewMaintenanceClient(k.whole.ActiveConnection()))
	type write struct{ revision, size int64 }
	var writes []write
	put := func() {
		r := &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "/own/%d", random.IntN(100)), Value: make([]byte, random.IntN(1000))}
		if err := u.reserve(ctx, putSize(r)); err != nil {
			t.Fatal(err)
		}
		resp, err := kv.Put(ctx, r)
		u.written(putSize(r), putSize(r), resp.GetHeader(), err)
		if err != nil {
			t.Fatal(err)
		}
		writes = append(writes, write{resp.GetHeader().GetRevision(), putSize(r)})
	}
	for range 20 {
		for range 100 {
			put()
			if _, err := kv.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{Key: fmt.Appendf(nil, "/own/%d", random.IntN(1000))}); err != nil {
				t.Fatal(err)
			}
			u.spans = append(u.spans, span{last: u.base}) // each write a span of its own
		}
		compacted := writes[len(writes)-1-random.IntN(50)].revision
		if _, err := k.whole.Compact(ctx, compacted); err != nil {
			t.Fatal(err)
		}
		if err := u.count(ctx); err != nil {
			t.Fatal(err)
		}
		want, err := u.liveAt(ctx, compacted)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range writes {
			if w.revision > compacted {
				want += w.size
			}
		}
		got := u.live
		for _, s := range u.spans {
			got += s.size
		}
		if got != want || u.base != compacted || u.pending != 0 {
			t.Fatalf("size %d at revision %d, want %d at %d; %d are pending", got, u.base, want, compacted, u.pending)
		}
	}
}

// A stage has its own leases, also those that another server has made, and no others'.
func TestKeyspaceLeases(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	again := k.serve(t, "again")
	lease, err := k.own.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.own.Put(ctx, "a", "1", clientv3.WithLease(lease.ID)); err != nil {
		t.Error(err)
	}
	if _, err := again.KeepAliveOnce(ctx, lease.ID); err != nil {
		t.Error(err)
	}
	if ttl, err := again.TimeToLive(ctx, lease.ID); err != nil || ttl.TTL <= 0 {
		t.Error(ttl, err)
	}
	if _, err := again.Revoke(ctx, lease.ID); err != nil {
		t.Error(err)
	}
	if got := keysOf(t, k.own, "a"); len(got) > 0 {
		t.Errorf("the keys of a revoked lease are there: %q", got)
	}

	others, err := k.whole.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.own.KeepAliveOnce(ctx, others.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("keep another's lease alive: %v", err)
	}
	if ttl, err := k.own.TimeToLive(ctx, others.ID); err != nil || ttl.TTL != -1 {
		t.Errorf("time to live of another's lease: %v, %v", ttl, err)
	}
	if _, err := k.own.Revoke(ctx, others.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("revoke another's lease: %v", err)
	}
	for _, op := range []clientv3.Op{
		clientv3.OpPut("a", "1", clientv3.WithLease(others.ID)),
		clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("a", "1", clientv3.WithLease(others.ID))}, nil)}),
	} {
		if _, err := k.own.Do(ctx, op); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("put with another's lease: %v", err)
		}
	}
	if _, err := etcdserverpb.NewLeaseClient(k.own.ActiveConnection()).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: 1, TTL: 60}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a lease with an id of another's: %v", err)
	}
	if _, err := k.own.Grant(ctx, bounds.LeaseTTL); err != nil {
		t.Error(err)
	}
	k.wantLimits(t)
	if _, err := k.own.Grant(ctx, bounds.LeaseTTL+1); !errors.Is(err, rpctypes.ErrLeaseTTLTooLarge) {
		t.Errorf("more than a day: %v", err)
	}
	k.wantLimits(t, LimitLeases)
}

func TestKeyspaceNumberOfLeases(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	ids, etcd := newLeaseIDs("/own/"), etcdserverpb.NewLeaseClient(k.whole.ActiveConnection())
	var g errgroup.Group
	g.SetLimit(50)
	for i := range bounds.Leases - 1 { // as if another server had made them
		g.Go(func() error {
			_, err := etcd.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: int64(ids) + int64(i), TTL: 600})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	last, err := k.own.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.own.Grant(ctx, 60); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one lease more: %v", err)
	}
	k.wantLimits(t, LimitLeases)
	if _, err := k.own.Revoke(ctx, last.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := k.own.Grant(ctx, 60); err != nil {
		t.Error(err)
	}
}

func TestKeyspaceKeyLength(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	if _, err := k.own.Put(ctx, strings.Repeat("k", bounds.StoreKey), ""); err != nil {
		t.Error(err)
	}
	k.wantLimits(t)
	long := clientv3.OpPut(strings.Repeat("k", bounds.StoreKey+1), "")
	for _, op := range []clientv3.Op{long, clientv3.OpTxn(nil, nil, []clientv3.Op{long})} {
		if _, err := k.own.Do(ctx, op); status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
		k.wantLimits(t, LimitKey)
	}
}

// The operations of a transaction count with those of the transactions in it, and what reads several keys counts many times.
func TestKeyspaceOperations(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	puts := func(from, n int) (ops []clientv3.Op) {
		for i := range n {
			ops = append(ops, clientv3.OpPut(fmt.Sprint(from+i), ""))
		}
		return ops
	}
	list := clientv3.OpGet("", clientv3.WithPrefix())
	for name, txn := range map[string]clientv3.Txn{
		"as etcd's own bound": largestTxn(k.own.Txn(ctx), puts(0, 128)),
		"two lists":           k.own.Txn(ctx).Then(list, list),
		"counts":              k.own.Txn(ctx).Then(slices.Repeat([]clientv3.Op{clientv3.OpGet("", clientv3.WithPrefix(), clientv3.WithCountOnly())}, 100)...),
	} {
		if _, err := txn.Commit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.wantLimits(t)
	inner := func(from int) clientv3.Op { return clientv3.OpTxn(nil, puts(from, 100), nil) }
	for name, txn := range map[string]clientv3.Txn{
		"transactions in it": k.own.Txn(ctx).Then(inner(0), inner(1000), inner(2000)),
		"three lists":        k.own.Txn(ctx).Then(list, list, list),
		"else":               k.own.Txn(ctx).Else(list, list, list),
		"comparisons of ranges": k.own.Txn(ctx).If(slices.Repeat([]clientv3.Cmp{
			clientv3.Compare(clientv3.Version("a"), "=", 0).WithRange("b")}, 3)...),
		"ranges deleted": k.own.Txn(ctx).Then(slices.Repeat([]clientv3.Op{clientv3.OpDelete("x", clientv3.WithPrefix(), clientv3.WithPrevKV())}, 3)...),
	} {
		if _, err := txn.Commit(); !errors.Is(err, rpctypes.ErrTooManyOps) {
			t.Errorf("%s: %v", name, err)
		}
		k.wantLimits(t, LimitOps)
	}
}

// largestTxn has as many comparisons as operations.
func largestTxn(txn clientv3.Txn, ops []clientv3.Op) clientv3.Txn {
	return txn.If(slices.Repeat([]clientv3.Cmp{clientv3.Compare(clientv3.Version("none"), "=", 0)}, len(ops))...).Then(ops...)
}

// Operations wait for those that are being executed.
func TestCallLimitsExecute(t *testing.T) {
	t.Parallel()
	c := newCallLimits(func(limit string) { t.Errorf("limit %s", limit) })
	done, err := c.execute(t.Context(), bounds.StoreOps-1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.execute(ctx, 2); status.Code(err) != codes.Canceled {
		t.Errorf("two more: %v", err)
	}
	one, err := c.execute(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	one()
	done()
	if _, err := c.execute(t.Context(), bounds.StoreOps); err != nil {
		t.Error(err)
	}
}

var createWatch = &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("a")}}}

// Requests are refused before they are read, those on all connections together; those that have ended make room for others.
func TestKeyspaceCalls(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, limit string
		most          int
		use           func(context.Context, *grpc.ClientConn) error
	}{
		"requests": {"/etcdserverpb.KV/Range", LimitCalls, bounds.StoreCalls, func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := etcdserverpb.NewKVClient(c).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("a")})
			return err
		}},
		"watches": {"/etcdserverpb.Watch/Watch", LimitStreams, bounds.StoreStreams, func(ctx context.Context, c *grpc.ClientConn) error {
			w, err := etcdserverpb.NewWatchClient(c).Watch(ctx)
			if err == nil {
				_ = w.Send(createWatch) // an error of it is that of Recv
				_, err = w.Recv()
			}
			return err
		}},
		"leases kept alive": {"/etcdserverpb.Lease/LeaseKeepAlive", LimitStreams, bounds.StoreStreams, func(ctx context.Context, c *grpc.ClientConn) error {
			l, err := etcdserverpb.NewLeaseClient(c).LeaseKeepAlive(ctx)
			if err == nil {
				_ = l.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 1})
				_, err = l.Recv()
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, k := testContext(t), newOwnKeys(t, 0)
			other := connectTo(t, strings.TrimPrefix(k.own.Endpoints()[0], "unix://"))
			refused := make(chan error, bounds.StoreStreams+1)
			begin := func(ctx context.Context, c *clientv3.Client) {
				s, err := c.ActiveConnection().NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, test.method)
				if err != nil {
					t.Fatal(err)
				}
				go func() { refused <- s.RecvMsg(new(etcdserverpb.RangeResponse)) }()
			}
			held, end := context.WithCancel(ctx)
			for i := range test.most + 1 {
				begin(held, []*clientv3.Client{k.own, other}[i%2])
			}
			if err := <-refused; status.Code(err) != codes.ResourceExhausted {
				t.Errorf("one more: %v", err)
			}
			k.wantLimits(t, test.limit)
			end()
			for range test.most {
				if err := <-refused; status.Code(err) != codes.Canceled {
					t.Errorf("one of those before: %v", err)
				}
			}
			for { // until the server knows that they have ended
				err := test.use(ctx, other.ActiveConnection())
				if err == nil {
					return
				}
				if status.Code(err) != codes.ResourceExhausted {
					t.Fatal(err)
				}
			}
		})
	}
}

// A stage that has too many watches loses the stream of the one that is too many, and has room again.
func TestKeyspaceWatches(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	client := etcdserverpb.NewWatchClient(k.own.ActiveConnection())
	for range 2 { // the watches of a stream end with it
		stream, err := client.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var last *etcdserverpb.WatchResponse
		watch := func() error {
			if err := stream.Send(createWatch); err != nil {
				return err
			}
			last, err = stream.Recv()
			return err
		}
		for i := range bounds.Watches {
			if err := watch(); err != nil || !last.GetCreated() {
				t.Fatal(i, last, err)
			}
		}
		k.wantLimits(t)
		if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: last.GetWatchId()}}}); err != nil {
			t.Fatal(err)
		}
		if canceled, err := stream.Recv(); err != nil || !canceled.GetCanceled() {
			t.Fatal(canceled, err)
		}
		if err := watch(); err != nil || !last.GetCreated() {
			t.Errorf("in place of one that has ended: %v, %v", last, err)
		}
		if err := watch(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one watch more: %v", err)
		}
		k.wantLimits(t, LimitWatches)
	}
}

func TestKeyspaceSizeOfMessages(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	if _, err := k.own.Put(ctx, strings.Repeat("k", bounds.StoreRequest), ""); status.Code(err) != codes.ResourceExhausted { // it is not read that far
		t.Errorf("a request that is too large: %v", err)
	}
	value := bytes.Repeat([]byte("v"), 1400<<10)
	if _, err := k.own.Put(ctx, "a", string(value)); err != nil {
		t.Fatal(err)
	}
	gets := func(n int) clientv3.Txn {
		return k.own.Txn(ctx).Then(slices.Repeat([]clientv3.Op{clientv3.OpGet("a")}, n)...)
	}
	if _, err := gets(20).Commit(); err != nil {
		t.Error(err)
	}
	if _, err := gets(bounds.StoreResponse/len(value) + 1).Commit(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a response that is too large: %v", err)
	}
}

// What writes, and would respond with more than a stage may have, is not executed.
func TestKeyspaceWritesThatRespondWithTooMuch(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	value := strings.Repeat("v", 1400<<10)
	n := bounds.StoreResponse/len(value) + 1
	for i := range n {
		if _, err := k.own.Put(ctx, fmt.Sprintf("many/%03d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	all := clientv3.OpGet("many/", clientv3.WithPrefix())
	remove := clientv3.OpDelete("many/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	absent := clientv3.Compare(clientv3.CreateRevision("mark"), "=", 0)
	for name, do := range map[string]func() error{
		"a deletion": func() error {
			_, err := k.own.Delete(ctx, "many/", clientv3.WithPrefix(), clientv3.WithPrevKV())
			return err
		},
		"a transaction": func() error {
			_, err := k.own.Txn(ctx).If(absent).Then(clientv3.OpPut("mark", ""), all).Commit()
			return err
		},
		"the other branch": func() error {
			_, err := k.own.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision("mark"), ">", 0)).Else(clientv3.OpPut("mark", ""), remove).Commit()
			return err
		},
		"a nested one": func() error {
			_, err := k.own.Txn(ctx).Then(clientv3.OpPut("mark", ""), clientv3.OpTxn(nil, []clientv3.Op{all}, nil)).Commit()
			return err
		},
	} {
		if err := do(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
		left, err := k.own.Get(ctx, "m", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || left.Count != int64(n) {
			t.Fatalf("%s: there are %d keys, want %d (%v)", name, left.Count, n, err)
		}
	}
	// The branch that is not executed does not count, nor what the response does not have.
	if _, err := k.own.Txn(ctx).If(absent).Then(clientv3.OpPut("mark", "")).Else(all).Commit(); err != nil {
		t.Error(err)
	}
	if resp, err := k.own.Delete(ctx, "many/", clientv3.WithPrefix()); err != nil || resp.Deleted != int64(n) {
		t.Error(resp, err)
	}
}

// A watch from long ago gets what happened since then, however large that is: no message has more than a stage can receive.
func TestKeyspaceWatchOfALongHistory(t *testing.T) {
	t.Parallel()
	ctx, k := testContext(t), newOwnKeys(t, 0)
	value := strings.Repeat("v", 1400<<10)
	n := bounds.StoreResponse/len(value) + 1
	first := int64(0)
	for range n {
		resp, err := k.own.Put(ctx, "a", value)
		if err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = resp.Header.Revision
		}
	}
	got := 0
	for resp := range k.own.Watch(ctx, "a", clientv3.WithRev(first)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		if got += len(resp.Events); got == n {
			return
		}
	}
	t.Errorf("%d of %d events", got, n)
}
