// Package store gives the API server its etcd: one embedded in this process,
// reached over a Unix socket, or an external cluster.
//
// ServeKeyspace gives a stage keys of its own. These, with their history, may fill a share of etcd's quota, 1/bounds.StoreShare,
// so that one stage cannot make the writes of all fail. etcd does not say what the keys below a prefix occupy; it holds
// what was live at its latest compaction and everything written since. The server counts the first by reading the keys at that
// revision, and adds up the second, each write as etcd's own quota does. It counts at the stage's first write, so a restart of the
// host forgets no live key, and again when the share is full and etcd has been compacted; only then do deletions, replaced values
// and expired keys make room. The history of before the server began does not count; etcd drops it at its next compaction. What another
// host writes to the same external etcd counts when this one counts: the keys that a stage has by N hosts fill N shares at most.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/host/internal/guard"
)

// Options are which etcd to use, and where.
type Options struct {
	// Dir is the data directory. See LockDir.
	Dir string
	// Lock is the lock of Dir, if the caller has it and releases it after Close. Without
	// it, Open takes the lock, whichever etcd is used, until Close.
	Lock *DirLock
	// Socket is the absolute path of the embedded server's Unix socket, at most
	// 107 bytes long. Its directory must exist and have mode 0700.
	Socket string
	// Admit returns why a process may not connect to the embedded server; nil if all of this user and of root may.
	Admit func(guard.Peer) error
	// QuotaBytes is how large the embedded database may grow before etcd refuses
	// writes; 0 is etcd's default, 2 GiB.
	QuotaBytes int64

	// Ephemeral is for an embedded database that is not opened again: it is not synced, and takes no space in advance.
	// All such databases of a process have to be.
	Ephemeral bool

	// Endpoints are the URLs of an external cluster. The embedded server runs if
	// there are none.
	Endpoints []string
	// CAFile, CertFile and KeyFile are for TLS to the external cluster.
	CAFile, CertFile, KeyFile string

	// Revisions, if not nil, is told the revisions by [Monitor].
	Revisions *Revisions

	// Logger gets etcd's own messages, those of level info as debug.
	Logger hclog.Logger
}

// Store is an etcd that responds. Its methods may be called concurrently.
type Store struct {
	lock     *DirLock // nil if it is the caller's
	embedded *embedded
	failed   chan error
	lost     atomic.Bool        // whether it has failed
	unwatch  context.CancelFunc // ends the goroutine that watches the data directory
}

// Open locks the data directory and returns when the embedded server serves, or when
// the external cluster has responded. The caller must Close the store. If ctx has no
// deadline, an external cluster gets 20 seconds to respond.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	s := &Store{failed: make(chan error, 1)}
	var err error
	lock := o.Lock
	if lock == nil {
		if s.lock, err = LockDir(o.Dir); err != nil {
			return nil, err
		}
		lock = s.lock
	}
	if len(o.Endpoints) > 0 {
		err = s.openExternal(ctx, o)
	} else {
		err = s.openEmbedded(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, s.unlock())
	}
	watch, cancel := context.WithCancel(context.Background())
	s.unwatch = cancel
	go s.watchDir(watch, lock)
	return s, nil
}

// dirInterval is how often the data directory is looked at.
const dirInterval = 500 * time.Millisecond

// watchDir reports a data directory that is deleted or moved. etcd would notice when it makes its
// next file, which can be long after the last write that a restart would still find.
func (s *Store) watchDir(ctx context.Context, lock *DirLock) {
	tick := time.NewTicker(dirInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := lock.Check(); err != nil && ctx.Err() == nil {
			if s.embedded != nil {
				s.embedded.ending.Store(true) // what etcd logs from now on has this cause
			}
			s.fail(err)
			return
		}
	}
}

func (s *Store) openExternal(ctx context.Context, o Options) error {
	return checkExternal(ctx, o)
}

func (s *Store) openEmbedded(ctx context.Context, o Options) error {
	if err := checkRestored(o.Dir); err != nil {
		return err
	}
	if err := checkExpected(o.Dir); err != nil {
		return err
	}
	dir := DataDir(o.Dir)
	_, statErr := os.Stat(dir)
	e, err := startEmbedded(ctx, dir, o, s.fail)
	if err != nil {
		_ = removeSocket(o.Socket)
		if errors.Is(statErr, fs.ErrNotExist) {
			// With incomplete files, such as after a full disk, etcd would crash at the next start.
			_ = os.RemoveAll(dir)
		}
		return fmt.Errorf("start embedded etcd in %s: %w", dir, err)
	}
	if err := expect(o.Dir); err != nil {
		return errors.Join(err, e.close(ctx))
	}
	s.embedded = e
	return nil
}

// Flags returns the flags of kube-apiserver, by name without dashes, with which it
// reaches the store that Open opens.
func (o Options) Flags() map[string]string {
	if len(o.Endpoints) == 0 {
		return map[string]string{"etcd-servers": "unix://" + o.Socket}
	}
	flags := map[string]string{"etcd-servers": strings.Join(o.Endpoints, ",")}
	for name, file := range map[string]string{
		"etcd-cafile": o.CAFile, "etcd-certfile": o.CertFile, "etcd-keyfile": o.KeyFile,
	} {
		if file != "" {
			flags[name] = file
		}
	}
	return flags
}

// Dial returns a client of the whole store when that has responded. The caller closes it.
func (o Options) Dial(ctx context.Context) (*clientv3.Client, error) {
	if len(o.Endpoints) > 0 {
		if err := checkExternal(ctx, o); err != nil {
			return nil, err
		}
	}
	return o.Connect()
}

// Connect returns a client of the whole store, which the caller closes. It does not wait for the store to respond.
func (o Options) Connect() (*clientv3.Client, error) {
	config := o.embeddedClient()
	if len(o.Endpoints) > 0 {
		tlsConfig, err := externalTLS(o)
		if err != nil {
			return nil, err
		}
		config = clientv3.Config{Endpoints: o.Endpoints, TLS: tlsConfig, Logger: zap.NewNop()}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return client, nil
}

// embeddedClient is for clients of the embedded server: only what listens at its socket is believed.
func (o Options) embeddedClient() clientv3.Config {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, _, err := guard.DialServer(ctx, o.Socket, o.Dir)
		return conn, err
	}
	return clientv3.Config{Endpoints: []string{"unix://" + o.Socket}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}}
}

// Failed delivers one error if the data directory is deleted or moved, or if the embedded
// server ends by itself. Nothing can be stored any more then.
func (s *Store) Failed() <-chan error { return s.failed }

// fail keeps the first error: the others are its consequences.
func (s *Store) fail(err error) {
	s.lost.Store(true)
	select {
	case s.failed <- err:
	default:
	}
}

// lostCloseTimeout bounds the end of an embedded server that has failed: one that has lost a goroutine does not end.
const lostCloseTimeout = time.Second

// Close ends the embedded server and unlocks the data directory. It gives up waiting
// when ctx ends; the directory is then locked until the process ends.
func (s *Store) Close(ctx context.Context) error {
	s.unwatch()
	if s.embedded != nil {
		lost := s.lost.Load()
		if lost {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, lostCloseTimeout)
			defer cancel()
		}
		if err := s.embedded.close(ctx); err != nil && !lost {
			return fmt.Errorf("close embedded etcd: %w", err)
		}
	}
	return s.unlock()
}

func (s *Store) unlock() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Release()
}

// makeDir creates a directory with mode 0700, or sets the mode of an existing one.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}
