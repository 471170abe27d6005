package store

import (
	"context"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// The limits of a stage with keys of its own.
const (
	LimitQuota   = "storeQuota"   // its share of the quota of etcd
	LimitKey     = "storeKey"     // the length of a key
	LimitOps     = "storeOps"     // the operations of a transaction
	LimitCalls   = "storeCalls"   // the requests at a time
	LimitStreams = "storeStreams" // the streams at a time
	LimitWatches = "storeWatches" // the watches
	LimitLeases  = "storeLeases"  // the leases, and their time
)

// callLimits bounds what the clients of a keyspace have under way.
type callLimits struct {
	limited func(limit string)
	ops     *semaphore.Weighted

	mu                      sync.Mutex
	calls, streams, watches int
}

func newCallLimits(limited func(limit string)) *callLimits {
	return &callLimits{limited: limited, ops: semaphore.NewWeighted(bounds.StoreOps)}
}

// options returns the bounds that are gRPC's. The windows, which gRPC would otherwise enlarge to 16 MiB for each stream, bound
// what is read before the request before it is done.
func (c *callLimits) options() []grpc.ServerOption {
	const stream, connection = 64 << 10, 1 << 20
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(bounds.StoreRequest), grpc.MaxConcurrentStreams(bounds.StoreCalls + bounds.StoreStreams),
		grpc.StaticStreamWindowSize(stream), grpc.StaticConnWindowSize(connection), grpc.InTapHandle(c.admit),
	}
}

// admit counts a call until its context ends, or refuses it, before any of its request is read.
func (c *callLimits) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	count, most, limit := &c.calls, bounds.StoreCalls, LimitCalls
	if strings.HasSuffix(info.FullMethodName, "/Watch") || strings.HasSuffix(info.FullMethodName, "/LeaseKeepAlive") {
		count, most, limit = &c.streams, bounds.StoreStreams, LimitStreams
	}
	if !c.add(count, most) {
		return ctx, c.refuse(limit, "a stage may have %d of these requests to its keys at a time", most)
	}
	context.AfterFunc(ctx, func() { c.subtract(count, 1) })
	return ctx, nil
}

func (c *callLimits) add(count *int, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *count >= most {
		return false
	}
	*count++
	return true
}

func (c *callLimits) subtract(count *int, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count -= n
}

func (c *callLimits) refuse(limit, format string, args ...any) error {
	c.limited(limit)
	return status.Errorf(codes.ResourceExhausted, format, args...)
}

// execute waits until so many operations may be executed. The caller calls done when they are.
func (c *callLimits) execute(ctx context.Context, ops int64) (done func(), err error) {
	if ops > bounds.StoreOps {
		c.limited(LimitOps)
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	ops = max(ops, 1)
	if err := c.ops.Acquire(ctx, ops); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return func() { c.ops.Release(ops) }, nil
}

// listOps is what reading several keys counts.
const listOps = bounds.StoreOps / bounds.StoreLists

func rangeOps(r *etcdserverpb.RangeRequest) int64 {
	if len(r.GetRangeEnd()) == 0 || r.GetCountOnly() {
		return 1
	}
	return listOps
}

func deleteOps(r *etcdserverpb.DeleteRangeRequest) int64 {
	if len(r.GetRangeEnd()) == 0 || !r.GetPrevKv() {
		return 1
	}
	return listOps
}

// txnOps returns what the comparisons of a transaction and the larger one of its branches count.
func txnOps(r *etcdserverpb.TxnRequest) int64 {
	var compares int64
	for _, c := range r.GetCompare() {
		if len(c.GetRangeEnd()) == 0 {
			compares++
		} else {
			compares += listOps
		}
	}
	return compares + max(branchOps(r.GetSuccess()), branchOps(r.GetFailure()))
}

func branchOps(ops []*etcdserverpb.RequestOp) (n int64) {
	for _, op := range ops {
		switch op := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestRange:
			n += rangeOps(op.RequestRange)
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			n += deleteOps(op.RequestDeleteRange)
		case *etcdserverpb.RequestOp_RequestTxn:
			n += 1 + txnOps(op.RequestTxn)
		default:
			n++
		}
	}
	return n
}

// watches counts the watches of one stream.
type watches struct {
	limits *callLimits // may be nil

	mu     sync.Mutex
	n      int
	closed bool
}

func (c *callLimits) newWatches() *watches { return &watches{limits: c} }

// begin counts one more, or refuses it.
func (w *watches) begin() error {
	if w.limits == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.limits.add(&w.limits.watches, bounds.Watches) {
		return w.limits.refuse(LimitWatches, "a stage may have %d watches of its keys", bounds.Watches)
	}
	w.n++
	return nil
}

func (w *watches) ended() { w.subtract(1) }

// close ends all.
func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	n := w.n
	w.mu.Unlock()
	w.subtract(n)
}

func (w *watches) subtract(n int) {
	if w.limits == nil {
		return
	}
	w.mu.Lock()
	n = min(n, w.n)
	w.n -= n
	w.mu.Unlock()
	w.limits.subtract(&w.limits.watches, n)
}
