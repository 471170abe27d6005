package store

import (
	"bytes"
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"google.golang.org/grpc"
)

// Reads of an embedded etcd are served from what it has applied, without a round through its log. For the only member
// of a cluster, that is as linearizable: it responds to a write after it has applied it, so a read that begins later
// finds it; what it has applied is in the log on the disk, so a crash takes back nothing that was read; and it is
// served when it has published itself in its log, which it does after all of an earlier log is applied. With several
// members, others may know more: nothing of this holds for an external cluster.

// localReads are the options of a server whose reads are local.
func localReads() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(readLocally), grpc.ChainStreamInterceptor(streamLocally)}
}

// readLocally is an interceptor of single requests.
func readLocally(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	makeLocal(req)
	return handler(ctx, req)
}

// streamLocally is an interceptor of streams, such as those of a LIST.
func streamLocally(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(service, localStream{stream})
}

// localStream is a stream whose requests are local.
type localStream struct{ grpc.ServerStream }

func (s localStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		makeLocal(m)
	}
	return err
}

// makeLocal has a request that only reads ask no other member. Checks of etcd's health go through the log as before:
// that it moves is what they are for.
func makeLocal(request any) {
	switch r := request.(type) {
	case *etcdserverpb.RangeRequest:
		r.Serializable = r.Serializable || !isHealthCheck(r)
	case *etcdserverpb.TxnRequest:
		if !txn.IsTxnReadonly(r) {
			return
		}
		for _, ops := range [][]*etcdserverpb.RequestOp{r.Success, r.Failure} {
			for _, op := range ops {
				makeLocal(op.GetRequestRange())
			}
		}
	}
}

// isHealthCheck reports whether a read is one by which Kubernetes' servers and [Monitor] see whether etcd responds.
func isHealthCheck(r *etcdserverpb.RangeRequest) bool {
	return len(r.RangeEnd) == 0 && bytes.HasSuffix(r.Key, []byte("/health"))
}
