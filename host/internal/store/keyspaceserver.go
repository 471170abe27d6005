package store

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/panics"
)

// Server is an etcd server in front of the store, for the stages that may not have all of it.
type Server struct {
	client *clientv3.Client
	server *grpc.Server
}

// maxServedRequest bounds one request of a client that only reads, in bytes; etcd's own bound is 1.5 MiB by default.
const maxServedRequest = 16 << 20

// serve serves what register adds on a listener, until Close.
func serve(o Options, l net.Listener, register func(s *grpc.Server, conn *grpc.ClientConn), options ...grpc.ServerOption) (*Server, error) {
	client, err := o.Connect()
	if err != nil {
		return nil, err
	}
	options = slices.Concat([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxServedRequest), grpc.MaxSendMsgSize(math.MaxInt32), grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.UnaryInterceptor(containUnary), grpc.StreamInterceptor(containStream)}, keepaliveOptions(*embed.NewConfig()), options)
	s := &Server{client: client, server: grpc.NewServer(options...)}
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
// leases as etcd does. What is about the whole store is refused: compaction, snapshots, members, users, others' leases.
//
// The clients are bounded together, see package bounds. limited is called with the limit, one of Limits, each time that one
// of their requests fails because of it; it must not block.
func ServeKeyspace(o Options, prefix string, l net.Listener, limited func(limit string)) (*Server, error) {
	keys, calls := newKeyspace(prefix), newCallLimits(limited)
	return serve(o, l, func(s *grpc.Server, conn *grpc.ClientConn) {
		kv, maintenance := etcdserverpb.NewKVClient(conn), etcdserverpb.NewMaintenanceClient(conn)
		etcdserverpb.RegisterKVServer(s, keyspaceKV{keyspace: keys, kv: kv, calls: calls,
			usage: newUsage(keys, kv, maintenance), leases: newLeaseIDs(prefix)})
		etcdserverpb.RegisterWatchServer(s, keyspaceWatch{keyspace: keys, watch: etcdserverpb.NewWatchClient(conn),
			calls: calls, response: receiveBounded})
		etcdserverpb.RegisterLeaseServer(s, &keyspaceLease{ids: newLeaseIDs(prefix),
			lease: etcdserverpb.NewLeaseClient(conn), calls: calls})
	}, calls.options()...)
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
	calls    *callLimits
	usage    *usage
	leases   leaseIDs
}

// receiveBounded allows the responses that a stage may have.
var receiveBounded = grpc.MaxCallRecvMsgSize(bounds.StoreResponse)

func (s keyspaceKV) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	done, err := s.calls.execute(ctx, rangeOps(r))
	if err != nil {
		return nil, err
	}
	defer done()
	s.keyspace.rangeRequest(r)
	resp, err := s.kv.Range(outgoing(ctx), r, receiveBounded)
	s.keyspace.strip(resp.GetKvs()...)
	return resp, err
}

func (s keyspaceKV) Put(ctx context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	if err := s.checkPut(r); err != nil {
		return nil, err
	}
	done, err := s.calls.execute(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer done()
	s.keyspace.putRequest(r)
	size := putSize(r)
	if err := s.reserve(ctx, size); err != nil {
		return nil, err
	}
	resp, err := s.kv.Put(outgoing(ctx), r, receiveBounded)
	s.usage.written(size, size, resp.GetHeader(), err)
	s.keyspace.strip(resp.GetPrevKv())
	return resp, err
}

func (s keyspaceKV) DeleteRange(ctx context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	done, err := s.calls.execute(ctx, deleteOps(r))
	if err != nil {
		return nil, err
	}
	defer done()
	s.keyspace.deleteRequest(r)
	if err := s.readFirst(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}}}); err != nil {
		return nil, err
	}
	resp, err := s.kv.DeleteRange(outgoing(ctx), r, receiveBounded)
	s.keyspace.strip(resp.GetPrevKvs()...)
	return resp, err
}

func (s keyspaceKV) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if err := s.checkPuts(r); err != nil {
		return nil, err
	}
	done, err := s.calls.execute(ctx, txnOps(r))
	if err != nil {
		return nil, err
	}
	defer done()
	s.keyspace.txnRequest(r)
	if err := s.readFirst(ctx, r); err != nil {
		return nil, err
	}
	success, failure := putsSize(r.GetSuccess()), putsSize(r.GetFailure())
	reserved := max(success, failure)
	if err := s.reserve(ctx, reserved); err != nil {
		return nil, err
	}
	resp, err := s.kv.Txn(outgoing(ctx), r, receiveBounded)
	size := reserved
	switch {
	case err == nil && resp.GetSucceeded():
		size = success
	case err == nil:
		size = failure
	}
	s.usage.written(reserved, size, resp.GetHeader(), err)
	s.keyspace.txnResponse(resp)
	return resp, err
}

// reserve returns etcd's own error for a full database if there is no room for that many bytes.
func (s keyspaceKV) reserve(ctx context.Context, size int64) error {
	err := s.usage.reserve(ctx, size)
	if errors.Is(err, rpctypes.ErrGRPCNoSpace) {
		s.calls.limited(LimitQuota)
	}
	return err
}

func (s keyspaceKV) checkPut(r *etcdserverpb.PutRequest) error {
	if n := len(r.GetKey()); n > bounds.StoreKey {
		s.calls.limited(LimitKey)
		return status.Errorf(codes.InvalidArgument, "a key of %d bytes: a stage may write keys of %d", n, bounds.StoreKey)
	}
	if id := r.GetLease(); id != 0 && !s.leases.own(id) {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	return nil
}

func (s keyspaceKV) checkPuts(r *etcdserverpb.TxnRequest) error {
	for _, op := range slices.Concat(r.GetSuccess(), r.GetFailure()) {
		var err error
		switch op := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestPut:
			err = s.checkPut(op.RequestPut)
		case *etcdserverpb.RequestOp_RequestTxn:
			err = s.checkPuts(op.RequestTxn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s keyspaceKV) Compact(context.Context, *etcdserverpb.CompactionRequest) (*etcdserverpb.CompactionResponse, error) {
	return nil, refused("compact the store: the server does")
}

type keyspaceWatch struct {
	etcdserverpb.UnimplementedWatchServer
	keyspace keyspace
	watch    etcdserverpb.WatchClient
	calls    *callLimits // may be nil
	response grpc.CallOption
}

// Watch passes on the requests of one stream and their responses, until either side ends it.
func (s keyspaceWatch) Watch(client etcdserverpb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancel(outgoing(client.Context()))
	defer cancel()
	etcd, err := s.watch.Watch(ctx, s.response)
	if err != nil {
		return err
	}
	watches := s.calls.newWatches()
	defer watches.close()
	refused := make(chan error, 1)
	go func() {
		if err := panics.Call(func() error { return s.passRequests(etcd, client, watches) }); err != nil {
			refused <- err
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
		case err != nil && ctx.Err() != nil:
			return <-refused
		case err != nil:
			return err
		}
		if resp.GetCanceled() {
			watches.ended()
		}
		s.keyspace.watchResponse(resp)
		if err := client.Send(resp); err != nil {
			return err
		}
	}
}

func (s keyspaceWatch) passRequests(etcd etcdserverpb.Watch_WatchClient, client etcdserverpb.Watch_WatchServer, watches *watches) error {
	for {
		r, err := client.Recv()
		if errors.Is(err, io.EOF) {
			return etcd.CloseSend()
		}
		if err != nil {
			return err
		}
		if r.GetCreateRequest() != nil {
			if err := watches.begin(); err != nil {
				return err
			}
		}
		s.keyspace.watchRequest(r)
		if etcd.Send(r) != nil {
			return nil // Recv has the reason
		}
	}
}

// keyspaceMaintenance serves Status alone, by which clients know etcd's version.
type keyspaceMaintenance struct {
	etcdserverpb.UnimplementedMaintenanceServer
	maintenance etcdserverpb.MaintenanceClient
}

func (s keyspaceMaintenance) Status(ctx context.Context, r *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return s.maintenance.Status(outgoing(ctx), r)
}
