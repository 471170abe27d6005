package store

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// usage is an estimate of what the keys of a keyspace occupy in etcd, with their history, and keeps it within a share of
// etcd's quota. etcd holds what was live at its latest compaction, and everything written since. The first is counted, at
// the first write and thereafter when the share is full and etcd has been compacted; the second is added up here. So values
// that were replaced or deleted count until etcd is compacted, and those of before this server, or through another one,
// when they are counted.
type usage struct {
	keyspace    keyspace
	kv          etcdserverpb.KVClient
	maintenance etcdserverpb.MaintenanceClient

	refreshing sync.Mutex
	refreshed  time.Time // guarded by refreshing

	mu   sync.Mutex
	most int64
	// live is the size of the keys that are live at revision base, which is 0 until they are counted.
	live, base int64
	// spans are the writes after base, oldest first, and pending those under way.
	spans   []span
	pending int64
}

// span are consecutive writes, up to a revision.
type span struct{ size, last int64 }

const (
	// spans is how many spans a full share has about: those that are older than a compaction no longer count.
	spans = 64
	// refreshPause is the least time between two looks at whether etcd has been compacted, and refreshTimeout bounds one.
	refreshPause   = time.Second
	refreshTimeout = time.Minute
	// countPage is how many keys are read at a time to count them: at most 60 MiB with etcd's own bound of a request.
	countPage = 40
	// putOverhead is what etcd counts for a write in addition to its key and value.
	putOverhead = 256
)

func newUsage(keys keyspace, kv etcdserverpb.KVClient, maintenance etcdserverpb.MaintenanceClient) *usage {
	return &usage{keyspace: keys, kv: kv, maintenance: maintenance}
}

// sizeOf returns what a key counts, twice: it is written once more when it is deleted.
func sizeOf(key, value []byte) int64 { return putOverhead + 2*int64(len(key)) + int64(len(value)) }

func putSize(r *etcdserverpb.PutRequest) int64 { return sizeOf(r.GetKey(), r.GetValue()) }

// putsSize returns the size of all that the operations may write.
func putsSize(ops []*etcdserverpb.RequestOp) (n int64) {
	for _, op := range ops {
		switch op := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestPut:
			n += putSize(op.RequestPut)
		case *etcdserverpb.RequestOp_RequestTxn:
			n += max(putsSize(op.RequestTxn.GetSuccess()), putsSize(op.RequestTxn.GetFailure()))
		}
	}
	return n
}

// reserve returns etcd's error for a full database if a write of that size does not fit. Otherwise the caller calls written.
func (u *usage) reserve(ctx context.Context, size int64) error {
	if size == 0 || u.take(size) {
		return nil
	}
	if err := u.refresh(ctx); err != nil {
		return err
	}
	if !u.take(size) {
		return rpctypes.ErrGRPCNoSpace
	}
	return nil
}

func (u *usage) take(size int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.live + u.pending
	for _, s := range u.spans {
		used += s.size
	}
	if u.base == 0 || used+size > u.most {
		return false
	}
	u.pending += size
	return true
}

// written ends what reserve began: with what of it was written, and etcd's response.
func (u *usage) written(reserved, size int64, header *etcdserverpb.ResponseHeader, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pending -= reserved
	if size == 0 || err != nil && !uncertain(err) {
		return
	}
	if n := len(u.spans); n == 0 || u.spans[n-1].size > u.most/spans {
		u.spans = append(u.spans, span{last: u.base})
	}
	s := &u.spans[len(u.spans)-1]
	s.size += size
	s.last = max(s.last, header.GetRevision())
}

// uncertain reports whether a write that failed may have been executed.
func uncertain(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true
	}
	return false
}

// refresh drops what etcd has dropped. It goes on if ctx ends: otherwise each client that does not wait would have it
// counted again.
func (u *usage) refresh(ctx context.Context) error {
	u.refreshing.Lock()
	defer u.refreshing.Unlock()
	if time.Since(u.refreshed) < refreshPause {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	err := u.count(ctx)
	for isCompacted(err) {
		err = u.count(ctx) // etcd was compacted in the meantime
	}
	if err != nil {
		return status.Errorf(status.Code(err), "count the keys of the stage: %s", status.Convert(err).Message())
	}
	u.refreshed = time.Now()
	return nil
}

func (u *usage) count(ctx context.Context) error {
	at, err := u.kv.Range(ctx, u.probe(0))
	if err != nil {
		return err
	}
	now, base := at.GetHeader().GetRevision(), u.countedAt()
	switch {
	case base == 0 || base > now: // the first time, or etcd was restored from a backup
		base = now
	default:
		compacted, err := u.compacted(ctx, base)
		if err != nil || !compacted {
			return err
		}
		if base, err = u.oldest(ctx, base, now); err != nil {
			return err
		}
	}
	live, err := u.liveAt(ctx, base)
	if err != nil {
		return err
	}
	etcd, err := u.maintenance.Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return err
	}
	u.rebase(base, live, shareOf(etcd.GetDbSizeQuota()))
	return nil
}

// shareOf returns the share of a quota, which counts as etcd's default if etcd has none, or is too old to say.
func shareOf(quota int64) int64 {
	if quota <= 0 {
		quota = storage.DefaultQuotaBytes
	}
	return quota / bounds.StoreShare
}

func (u *usage) countedAt() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.base
}

func (u *usage) rebase(base, live, most int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if base < u.base {
		u.spans = nil
	}
	u.base, u.live, u.most = base, live, most
	u.spans = slices.DeleteFunc(u.spans, func(s span) bool { return s.last <= base })
}

// probe is a request that reads nothing, at a revision.
func (u *usage) probe(revision int64) *etcdserverpb.RangeRequest {
	return &etcdserverpb.RangeRequest{Key: u.keyspace.prefix, Revision: revision, CountOnly: true}
}

func (u *usage) compacted(ctx context.Context, revision int64) (bool, error) {
	_, err := u.kv.Range(ctx, u.probe(revision))
	if isCompacted(err) {
		return true, nil
	}
	return false, err
}

func isCompacted(err error) bool { return errors.Is(err, rpctypes.ErrGRPCCompacted) }

// oldest returns the oldest revision after one, and up to another, that is not compacted.
func (u *usage) oldest(ctx context.Context, after, to int64) (int64, error) {
	var failed error
	n := sort.Search(int(to-after), func(i int) bool {
		if failed != nil {
			return true
		}
		compacted, err := u.compacted(ctx, after+1+int64(i))
		failed = err
		return !compacted
	})
	return min(after+1+int64(n), to), failed
}

// liveAt returns the size of the keys that were live at a revision.
func (u *usage) liveAt(ctx context.Context, revision int64) (size int64, err error) {
	from := u.keyspace.prefix
	for {
		resp, err := u.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: from, RangeEnd: u.keyspace.end,
			Revision: revision, Limit: countPage}, receiveAll)
		if err != nil {
			return 0, err
		}
		for _, kv := range resp.GetKvs() {
			size += sizeOf(kv.GetKey(), kv.GetValue())
			from = append(slices.Clone(kv.GetKey()), 0)
		}
		if !resp.GetMore() {
			return size, nil
		}
	}
}
