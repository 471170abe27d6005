package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// leaseIDs are the ids of the leases of one keyspace: those with the same upper bits, which are a hash of the prefix. So a
// lease is known as the stage's own whichever host has made it, and nothing about it has to be stored.
type leaseIDs int64

// freeBits are the lower bits of an id, which are random.
const freeBits = 20

func newLeaseIDs(prefix string) leaseIDs {
	hash := sha256.Sum256([]byte(prefix))
	return leaseIDs(binary.BigEndian.Uint64(hash[:]) >> (1 + freeBits) << freeBits) // ids are positive
}

func (ids leaseIDs) own(id int64) bool { return id>>freeBits == int64(ids)>>freeBits && id > 0 }

func (ids leaseIDs) random() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // which never fails
	return int64(ids) | int64(binary.BigEndian.Uint64(b[:])>>(64-freeBits))
}

// keyspaceLease serves the leases of one keyspace. To its clients, those of others do not exist.
type keyspaceLease struct {
	etcdserverpb.UnimplementedLeaseServer
	ids   leaseIDs
	lease etcdserverpb.LeaseClient
	calls *callLimits

	granting sync.Mutex
}

// LeaseGrant makes one lease at a time, so that their number holds.
func (s *keyspaceLease) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	if r.GetTTL() > bounds.LeaseTTL {
		s.calls.limited(LimitLeases)
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	if r.GetID() != 0 && !s.ids.own(r.GetID()) {
		return nil, refused("choose the ids of its leases")
	}
	s.granting.Lock()
	defer s.granting.Unlock()
	if err := s.checkNumber(ctx); err != nil {
		return nil, err
	}
	if r.GetID() != 0 {
		return s.lease.LeaseGrant(outgoing(ctx), r)
	}
	for {
		r.ID = s.ids.random()
		resp, err := s.lease.LeaseGrant(outgoing(ctx), r)
		if !errors.Is(err, rpctypes.ErrGRPCLeaseExist) {
			return resp, err
		}
	}
}

func (s *keyspaceLease) checkNumber(ctx context.Context) error {
	all, err := s.lease.LeaseLeases(outgoing(ctx), &etcdserverpb.LeaseLeasesRequest{}, receiveAll)
	if err != nil {
		return status.Errorf(status.Code(err), "count the leases of the stage: %s", status.Convert(err).Message())
	}
	n := 0
	for _, l := range all.GetLeases() {
		if s.ids.own(l.GetID()) {
			n++
		}
	}
	if n >= bounds.Leases {
		return s.calls.refuse(LimitLeases, "a stage may have %d leases: revoke some, or wait until they expire", bounds.Leases)
	}
	return nil
}

func (s *keyspaceLease) LeaseRevoke(ctx context.Context, r *etcdserverpb.LeaseRevokeRequest) (*etcdserverpb.LeaseRevokeResponse, error) {
	if !s.ids.own(r.GetID()) {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	return s.lease.LeaseRevoke(outgoing(ctx), r)
}

func (s *keyspaceLease) LeaseKeepAlive(client etcdserverpb.Lease_LeaseKeepAliveServer) error {
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
		// what etcd responds if there is no such lease
		resp := &etcdserverpb.LeaseKeepAliveResponse{Header: &etcdserverpb.ResponseHeader{}, ID: r.GetID()}
		if s.ids.own(r.GetID()) {
			if resp, err = keepAlive(etcd, r); err != nil {
				return err
			}
		}
		if err := client.Send(resp); err != nil {
			return err
		}
	}
}

func keepAlive(etcd etcdserverpb.Lease_LeaseKeepAliveClient, r *etcdserverpb.LeaseKeepAliveRequest) (*etcdserverpb.LeaseKeepAliveResponse, error) {
	if err := etcd.Send(r); err != nil && !errors.Is(err, io.EOF) { // Recv has the reason of an EOF
		return nil, err
	}
	return etcd.Recv()
}

// LeaseTimeToLive leaves out the keys: those of others can have the lease too.
func (s *keyspaceLease) LeaseTimeToLive(ctx context.Context, r *etcdserverpb.LeaseTimeToLiveRequest) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	if !s.ids.own(r.GetID()) {
		// as etcd, if there is no such lease
		return &etcdserverpb.LeaseTimeToLiveResponse{Header: &etcdserverpb.ResponseHeader{}, ID: r.GetID(), TTL: -1}, nil
	}
	r.Keys = false
	return s.lease.LeaseTimeToLive(outgoing(ctx), r)
}

func (s *keyspaceLease) LeaseLeases(context.Context, *etcdserverpb.LeaseLeasesRequest) (*etcdserverpb.LeaseLeasesResponse, error) {
	return nil, refused("list the leases of the store")
}
