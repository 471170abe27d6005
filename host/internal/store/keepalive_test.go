package store

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Clients that ask all the time whether the server is there, as Kubernetes' do every 30 seconds, keep their connections and with them
// their watches: at the socket of the store, at that of a stage's own keys, and at that of a reader. gRPC would end each at the fourth ping.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	k := newOwnKeys(t, 0)
	sockets := map[string]string{
		"store": k.o.Socket, "own": endpoint(k.own), "readonly": endpoint(serveBeside(t, k.o, "readonly", ServeReadOnly)),
	}
	clients := map[string]*pinging{}
	for name, socket := range sockets {
		clients[name] = newPinging(t, socket)
	}
	for name, c := range clients {
		c.await(t, name, 4)
		if _, err := c.Get(t.Context(), "key"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := c.conns.Load(); n != 1 {
			t.Errorf("%s: the client has made %d connections, want one", name, n)
		}
	}
}

func endpoint(c *clientv3.Client) string { return strings.TrimPrefix(c.Endpoints()[0], "unix://") }

// pinging is a client that pings the server as often as gRPC lets it, each ten seconds, because it has a watch.
type pinging struct {
	*clientv3.Client
	conns, pings atomic.Int32
}

func newPinging(t *testing.T, socket string) *pinging {
	t.Helper()
	p := &pinging{}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			p.conns.Add(1)
		}
		return countedPings{conn, &p.pings}, err
	}
	var err error
	p.Client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Minute,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	created := <-p.Watch(t.Context(), "key", clientv3.WithCreatedNotify())
	if err := created.Err(); err != nil || !created.Created {
		t.Fatal("no watch:", err)
	}
	return p
}

// await waits for the client's nth ping, or for another connection if it loses the first.
func (p *pinging) await(t *testing.T, name string, n int32) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); p.pings.Load() < n && p.conns.Load() == 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d pings in two minutes", name, p.pings.Load())
		}
	}
}

// countedPings counts the pings by which a client asks whether the server is there.
type countedPings struct {
	net.Conn
	n *atomic.Int32
}

// ping is the frame: 8 bytes of type 6, without flags, of stream 0. Those that measure the connection have other bytes.
var ping = append([]byte{0, 0, 8, 6}, make([]byte, 1+4+8)...)

func (c countedPings) Write(b []byte) (int, error) {
	if bytes.Equal(b, ping) {
		c.n.Add(1)
	}
	return c.Conn.Write(b)
}

// Locks and elections are services of etcd's own listener, for clients that have no more than gRPC.
func TestLocksAndElections(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	conn := connectTo(t, openStore(t, 0).Socket).ActiveConnection()
	if _, err := v3lockpb.NewLockClient(conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("lock")}); err != nil {
		t.Error(err)
	}
	elections := v3electionpb.NewElectionClient(conn)
	if _, err := elections.Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("election"), Value: []byte("leader")}); err != nil {
		t.Fatal(err)
	}
	if leader, err := elections.Leader(ctx, &v3electionpb.LeaderRequest{Name: []byte("election")}); err != nil || string(leader.Kv.Value) != "leader" {
		t.Errorf("%v %v", leader, err)
	}
}
