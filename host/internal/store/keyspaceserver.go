package store

import (
	"context"
	"errors"
	"io"
	"math"
	"net"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/panics"
)

// Server is an etcd server in front of the store, for the stages that may not have all of it.
type Server struct {
	client *clientv3.Client
	server *grpc.Server
}

// maxServedRequest bounds one request, in bytes; etcd's own bound is 1.5 MiB by default.
const maxServedRequest = 16 << 20

// serve serves what register adds on a listener, until Close.
func serve(o Options, l net.Listener, register func(s *grpc.Server, conn *grpc.ClientConn)) (*Server, error) {
	client, err := o.Connect()
	if err != nil {
		return nil, err
	}
	s := &Server{client: client, server: grpc.NewServer(
		grpc.MaxRecvMsgSize(maxServedRequest), grpc.MaxSendMsgSize(math.MaxInt32), grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.UnaryInterceptor(containUnary), grpc.StreamInterceptor(containStream))}
	conn := client.ActiveConnection()
	register(s.server, conn)
	etcdserverpb.RegisterMaintenanceServer(s.server, keyspaceMaintenance{maintenance: etcdserverpb.NewMaintenanceClient(conn)})
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

// Close ends the server, with all that its clients have under way.
func (s *Server) Close() error {
	s.server.Stop()
	return s.client.Close()
}

// ServeKeyspace serves the part of the store with a prefix, which ends with a slash, on a listener, until Close: its clients
// see the keys that begin with the prefix, without it, and no others. It serves reads, writes, transactions, watches and
// leases as etcd does. What is about the whole store is refused: compaction, snapshots, members, users.
func ServeKeyspace(o Options, prefix string, l net.Listener) (*Server, error) {
	keys := newKeyspace(prefix)
	return serve(o, l, func(s *grpc.Server, conn *grpc.ClientConn) {
		etcdserverpb.RegisterKVServer(s, keyspaceKV{keyspace: keys, kv: etcdserverpb.NewKVClient(conn)})
		etcdserverpb.RegisterWatchServer(s, keyspaceWatch{keyspace: keys, watch: etcdserverpb.NewWatchClient(conn)})
		etcdserverpb.RegisterLeaseServer(s, keyspaceLease{keyspace: keys, lease: etcdserverpb.NewLeaseClient(conn)})
	})
}

// receiveAll allows responses as large as etcd sends them.
var receiveAll = grpc.MaxCallRecvMsgSize(math.MaxInt32)

// outgoing passes on what etcd's client says of a call: whether it needs a leader.
func outgoing(ctx context.Context) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	out := metadata.MD{}
	for _, key := range []string{"hasleader", "client-api-version"} {
		if values := in.Get(key); len(values) > 0 {
			out.Set(key, values...)
		}
	}
	return metadata.NewOutgoingContext(ctx, out)
}

func refused(what string) error {
	return status.Errorf(codes.PermissionDenied, "a stage with keys of its own cannot %s", what)
}

type keyspaceKV struct {
	etcdserverpb.UnimplementedKVServer
	keyspace keyspace
	kv       etcdserverpb.KVClient
}

func (s keyspaceKV) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	s.keyspace.rangeRequest(r)
	resp, err := s.kv.Range(outgoing(ctx), r, receiveAll)
	s.keyspace.strip(resp.GetKvs()...)
	return resp, err
}

func (s keyspaceKV) Put(ctx context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	s.keyspace.putRequest(r)
	resp, err := s.kv.Put(outgoing(ctx), r, receiveAll)
	s.keyspace.strip(resp.GetPrevKv())
	return resp, err
}

func (s keyspaceKV) DeleteRange(ctx context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	s.keyspace.deleteRequest(r)
	resp, err := s.kv.DeleteRange(outgoing(ctx), r, receiveAll)
	s.keyspace.strip(resp.GetPrevKvs()...)
	return resp, err
}

func (s keyspaceKV) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	s.keyspace.txnRequest(r)
	resp, err := s.kv.Txn(outgoing(ctx), r, receiveAll)
	s.keyspace.txnResponse(resp)
	return resp, err
}

func (s keyspaceKV) Compact(context.Context, *etcdserverpb.CompactionRequest) (*etcdserverpb.CompactionResponse, error) {
	return nil, refused("compact the store: the server does")
}

type keyspaceWatch struct {
	etcdserverpb.UnimplementedWatchServer
	keyspace keyspace
	watch    etcdserverpb.WatchClient
}

// Watch passes on the requests of one stream and their responses, until either side ends it.
func (s keyspaceWatch) Watch(client etcdserverpb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancel(outgoing(client.Context()))
	defer cancel()
	etcd, err := s.watch.Watch(ctx, receiveAll)
	if err != nil {
		return err
	}
	go func() {
		if err := panics.Call(func() error { return s.passRequests(etcd, client) }); err != nil {
			cancel()
		}
	}()
	for {
		resp, err := etcd.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && client.Context().Err() != nil:
			return status.FromContextError(client.Context().Err()).Err()
		case err != nil:
			return err
		}
		s.keyspace.watchResponse(resp)
		if err := client.Send(resp); err != nil {
			return err
		}
	}
}

func (s keyspaceWatch) passRequests(etcd etcdserverpb.Watch_WatchClient, client etcdserverpb.Watch_WatchServer) error {
	for {
		r, err := client.Recv()
		if errors.Is(err, io.EOF) {
			return etcd.CloseSend()
		}
		if err != nil {
			return err
		}
		s.keyspace.watchRequest(r)
		if err := etcd.Send(r); err != nil {
			return err
		}
	}
}

type keyspaceLease struct {
	etcdserverpb.UnimplementedLeaseServer
	keyspace keyspace
	lease    etcdserverpb.LeaseClient
}

func (s keyspaceLease) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	return s.lease.LeaseGrant(outgoing(ctx), r)
}

// LeaseRevoke is refused, as it deletes all keys of a lease, and a lease may be another's.
func (s keyspaceLease) LeaseRevoke(context.Context, *etcdserverpb.LeaseRevokeRequest) (*etcdserverpb.LeaseRevokeResponse, error) {
	return nil, refused("revoke leases: they expire")
}

func (s keyspaceLease) LeaseKeepAlive(client etcdserverpb.Lease_LeaseKeepAliveServer) error {
	etcd, err := s.lease.LeaseKeepAlive(outgoing(client.Context()))
	if err != nil {
		return err
	}
	for {
		r, err := client.Recv()
		if errors.Is(err, io.EOF) {
			return etcd.CloseSend()
		}
		if err != nil {
			return err
		}
		if err := etcd.Send(r); err != nil {
			return err
		}
		resp, err := etcd.Recv()
		if err != nil {
			return err
		}
		if err := client.Send(resp); err != nil {
			return err
		}
	}
}

// LeaseTimeToLive leaves out the keys, which may be another's.
func (s keyspaceLease) LeaseTimeToLive(ctx context.Context, r *etcdserverpb.LeaseTimeToLiveRequest) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	r.Keys = false
	return s.lease.LeaseTimeToLive(outgoing(ctx), r)
}

func (s keyspaceLease) LeaseLeases(context.Context, *etcdserverpb.LeaseLeasesRequest) (*etcdserverpb.LeaseLeasesResponse, error) {
	return nil, refused("list the leases of the store")
}

// keyspaceMaintenance serves Status alone, by which clients know etcd's version.
type keyspaceMaintenance struct {
	etcdserverpb.UnimplementedMaintenanceServer
	maintenance etcdserverpb.MaintenanceClient
}

func (s keyspaceMaintenance) Status(ctx context.Context, r *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return s.maintenance.Status(outgoing(ctx), r)
}
