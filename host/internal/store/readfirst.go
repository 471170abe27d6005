package store

import (
	"context"
	"math"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// readFirst refuses a transaction that writes and whose response could be larger than a stage may have, before it is
// executed: it reads what that would have.
func (s keyspaceKV) readFirst(ctx context.Context, r *etcdserverpb.TxnRequest) error {
	if values, writes := effects(r); !writes || values <= bounds.StoreResponse/bounds.StoreRequest {
		return nil
	}
	_, err := s.kv.Txn(outgoing(ctx), readsOf(r), receiveBounded)
	return err
}

// effects is how many values a transaction responds with at most, and whether it writes.
func effects(r *etcdserverpb.TxnRequest) (values int64, writes bool) {
	for _, ops := range [][]*etcdserverpb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		var n int64
		for _, op := range ops {
			var more int64
			switch op := op.GetRequest().(type) {
			case *etcdserverpb.RequestOp_RequestRange:
				more = valuesOf(op.RequestRange)
			case *etcdserverpb.RequestOp_RequestTxn:
				var nested bool
				more, nested = effects(op.RequestTxn)
				writes = writes || nested
			default:
				more, writes = valuesOf(before(op)), true
			}
			n = min(n+more, math.MaxInt32)
		}
		values = max(values, n)
	}
	return values, writes
}

func valuesOf(r *etcdserverpb.RangeRequest) int64 {
	switch {
	case r == nil:
		return 0
	case len(r.RangeEnd) == 0:
		return 1
	case r.Limit > 0:
		return min(r.Limit, math.MaxInt32)
	default:
		return math.MaxInt32
	}
}

// readsOf returns a transaction that responds with the values that r does, and writes nothing.
func readsOf(r *etcdserverpb.TxnRequest) *etcdserverpb.TxnRequest {
	return &etcdserverpb.TxnRequest{Compare: r.GetCompare(), Success: readsIn(r.GetSuccess()), Failure: readsIn(r.GetFailure())}
}

func readsIn(ops []*etcdserverpb.RequestOp) (reads []*etcdserverpb.RequestOp) {
	for _, op := range ops {
		switch request := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestRange:
			reads = append(reads, op)
		case *etcdserverpb.RequestOp_RequestTxn:
			reads = append(reads, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: readsOf(request.RequestTxn)}})
		default:
			if r := before(request); r != nil {
				reads = append(reads, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: r}})
			}
		}
	}
	return reads
}

// before returns a request for what a write responds with: what was there before, if it asks for that.
func before(op any) *etcdserverpb.RangeRequest {
	switch op := op.(type) {
	case *etcdserverpb.RequestOp_RequestPut:
		if r := op.RequestPut; r.GetPrevKv() {
			return &etcdserverpb.RangeRequest{Key: r.Key}
		}
	case *etcdserverpb.RequestOp_RequestDeleteRange:
		if r := op.RequestDeleteRange; r.GetPrevKv() {
			return &etcdserverpb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd}
		}
	}
	return nil
}
