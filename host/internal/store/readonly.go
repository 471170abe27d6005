package store

import (
	"context"
	"fmt"
	"net"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ServeReadOnly serves the store on a listener, until Close: its clients can read all of it and watch it, and change nothing.
func ServeReadOnly(o Options, l net.Listener) (*Server, error) {
	return serve(o, l, func(s *grpc.Server, conn *grpc.ClientConn) {
		etcdserverpb.RegisterKVServer(s, readOnlyKV{kv: etcdserverpb.NewKVClient(conn)})
		etcdserverpb.RegisterWatchServer(s, keyspaceWatch{watch: etcdserverpb.NewWatchClient(conn), response: receiveAll})
		etcdserverpb.RegisterLeaseServer(s, etcdserverpb.UnimplementedLeaseServer{})
	})
}

// readOnlyKV serves reads, and transactions that have nothing but reads in them.
type readOnlyKV struct {
	etcdserverpb.UnimplementedKVServer
	kv etcdserverpb.KVClient
}

func (s readOnlyKV) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return s.kv.Range(outgoing(ctx), r, receiveAll)
}

func (s readOnlyKV) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if err := onlyReads(r); err != nil {
		return nil, err
	}
	return s.kv.Txn(outgoing(ctx), r, receiveAll)
}

func (s readOnlyKV) Put(_ context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	return nil, readOnly(r.GetKey())
}

func (s readOnlyKV) DeleteRange(_ context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	return nil, readOnly(r.GetKey())
}

func (s readOnlyKV) Compact(context.Context, *etcdserverpb.CompactionRequest) (*etcdserverpb.CompactionResponse, error) {
	return nil, status.Error(codes.PermissionDenied, "this process may read the store only, and not compact it")
}

// onlyReads returns an error if a branch of a transaction writes.
func onlyReads(r *etcdserverpb.TxnRequest) error {
	for _, ops := range [][]*etcdserverpb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			switch op := op.GetRequest().(type) {
			case *etcdserverpb.RequestOp_RequestRange:
			case *etcdserverpb.RequestOp_RequestTxn:
				if err := onlyReads(op.RequestTxn); err != nil {
					return err
				}
			case *etcdserverpb.RequestOp_RequestPut:
				return readOnly(op.RequestPut.GetKey())
			case *etcdserverpb.RequestOp_RequestDeleteRange:
				return readOnly(op.RequestDeleteRange.GetKey())
			default:
				return status.Errorf(codes.PermissionDenied, "this process may read the store only: %T", op)
			}
		}
	}
	return nil
}

func readOnly(key []byte) error {
	return status.Error(codes.PermissionDenied, fmt.Sprintf("this process may read the store only, and not write %s", key))
}
