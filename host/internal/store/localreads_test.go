package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// reading is a way to read a key.
type reading func(ctx context.Context, c *clientv3.Client, key string) error

var readings = map[string]reading{
	"range": func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Get(ctx, key)
		return err
	},
	"stream": func(ctx context.Context, c *clientv3.Client, key string) error {
		stream, err := c.GetStream(ctx, key)
		if err == nil {
			_, err = clientv3.GetStreamToGetResponse(stream)
		}
		return err
	},
	"transaction": func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), ">", 0)).
			Then(clientv3.OpGet(key)).Else(clientv3.OpGet(key), clientv3.OpGet("other")).Commit()
		return err
	},
}

// loseQuorum makes the only member of a cluster one of two, of which the other does not exist: what needs the log
// waits.
func loseQuorum(t *testing.T, c *clientv3.Client) {
	t.Helper()
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.MemberAdd(t.Context(), []string{"http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
}

// waits checks that a read has no response without the log.
func waits(t *testing.T, name string, read reading, c *clientv3.Client, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := read(ctx, c, key); err == nil || status.Code(err) == codes.Unimplemented {
		t.Errorf("%s of %s: %v, want no response", name, key, err)
	}
}

func TestReadsAreLocal(t *testing.T) {
	t.Parallel()
	_, c := mustOpen(t, optionsFor(newDir(t)))
	loseQuorum(t, c)
	for name, read := range readings {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := read(ctx, c, "key"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, key := range []string{"/registry/health", "catena/health"} {
		waits(t, "range", readings["range"], c, key)
	}
	waits(t, "a transaction that writes", func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpPut(key, "")).Commit()
		return err
	}, c, "key")
}

// Of a cluster with other members, neither Catena's own clients nor what it serves beside the store reads locally.
func TestReadsOfAnExternalEtcdAreNotLocal(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	t.Cleanup(startEtcdOn(t, dir))
	socket := filepath.Join(dir, "etcd.sock")
	o := Options{Dir: dir, Socket: socket, Endpoints: []string{"unix://" + socket}}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	whole, err := o.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = whole.Close() })
	served := map[string]*clientv3.Client{
		"whole": whole, "read only": serveBeside(t, o, "all", ServeReadOnly),
		"keyspace": serveBeside(t, o, "own", func(o Options, l net.Listener) (*Server, error) {
			return ServeKeyspace(o, "/own/", l, func(string) {})
		}),
	}
	loseQuorum(t, whole)
	for of, c := range served {
		for name, read := range readings {
			if name != "stream" || of == "whole" { // the others do not have it
				waits(t, of+": "+name, read, c, "key")
			}
		}
	}
}

// A server whose database lacks much of its log serves nothing before it has applied that.
func TestUnappliedLog(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	opened := func(use func(*clientv3.Client)) {
		t.Helper()
		s, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := dialStore(o)
		if err != nil {
			t.Fatal(err)
		}
		use(c)
		if err := errors.Join(c.Close(), s.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	put := func(c *clientv3.Client, key string) {
		if _, err := c.Put(t.Context(), key, "value"); err != nil {
			t.Error(err)
		}
	}
	opened(func(c *clientv3.Client) { put(c, "first") })
	db := filepath.Join(o.Dir, "etcd", "member", "snap", "db")
	old, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	opened(func(c *clientv3.Client) {
		var writers sync.WaitGroup
		for id := range 100 {
			writers.Go(func() {
				for n := range 50 {
					put(c, fmt.Sprint("key-", id, "-", n))
				}
			})
		}
		writers.Wait()
		put(c, "last")
	})
	if err := os.WriteFile(db, old, 0o600); err != nil {
		t.Fatal(err)
	}
	opened(func(c *clientv3.Client) {
		if got, err := c.Get(t.Context(), "last"); err != nil || got.Count != 1 {
			t.Errorf("the last write of the log is not there: %v", err)
		}
	})
}

// registers is what concurrent clients have asked of keys, and what the responses were.
type registers struct {
	asked atomic.Int64
	began time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
}

// perKey is how many requests there are for one key: the check of a long history of one key takes too long.
const perKey = 400

// registerInput is a request: a write if value is not 0.
type registerInput struct {
	key   string
	value int64
}

// ask makes one request. One without a response may be executed at any time from now on, or never.
func (r *registers) ask(ctx context.Context, c *clientv3.Client, id int) error {
	n := r.asked.Add(1)
	in := registerInput{key: fmt.Sprint("key-", n/perKey)}
	if rand.IntN(2) == 0 {
		in.value = n
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	op := porcupine.Operation{ClientId: id, Input: in, Output: int64(0), Call: int64(time.Since(r.began))}
	var err error
	if in.value != 0 {
		_, err = c.Put(ctx, in.key, fmt.Sprint(in.value))
	} else {
		var resp *clientv3.GetResponse
		if resp, err = c.Get(ctx, in.key); err == nil && len(resp.Kvs) > 0 {
			var value int64
			_, err = fmt.Sscan(string(resp.Kvs[0].Value), &value)
			op.Output = value
		}
	}
	op.Return = int64(time.Since(r.began))
	if err != nil && in.value == 0 {
		return err
	}
	if err != nil {
		op.Return = math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, op)
	return err
}

// client asks until ctx ends.
func (r *registers) client(ctx context.Context, o Options, id int) {
	for ctx.Err() == nil {
		c, err := dialStore(o)
		for err == nil && ctx.Err() == nil {
			err = r.ask(ctx, c, id)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// registerModel is a key that has the value last written.
var registerModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range all {
			key := op.Input.(registerInput).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		if value := input.(registerInput).value; value != 0 {
			return true, value
		}
		return output == state, state
	},
}

// Local reads are linearizable, also where the server is killed: what a read has seen, a later one sees.
func TestLocalReadsAreLinear(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	r := &registers{began: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for id := range 6 {
		clients.Go(func() { r.client(ctx, o, id) })
	}
	const kills, between = 6, 2000
	for n := range kills {
		cmd := child("hold", o.Dir)
		if lines := startChild(t, cmd); !lines.Scan() {
			t.Fatal("the store was not opened")
		}
		for r.asked.Load() < int64(n+1)*between {
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	cancel()
	clients.Wait()
	if result := porcupine.CheckOperationsTimeout(registerModel, r.operations, time.Minute); result != porcupine.Ok {
		t.Errorf("the history of %d requests is %s", len(r.operations), result)
	}
}
