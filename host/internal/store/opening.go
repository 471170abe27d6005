package store

import (
	"context"
	"time"

	"github.com/catena-dev/catena/host/internal/panics"
)

// Opening is a store that is being opened, or is open.
type Opening struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the others are set
	store  *Store
	err    error
}

// Begin begins to open a store, as Open does, until ctx ends. The caller must Close it.
func Begin(ctx context.Context, o Options) *Opening {
	ctx, cancel := context.WithCancel(ctx)
	s := &Opening{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = panics.Call(func() (err error) {
			s.store, err = Open(ctx, o)
			return err
		})
	}()
	return s
}

// Await returns the store when it is open, or has failed to open. It can be called more than once.
func (s *Opening) Await() (*Store, error) {
	<-s.done
	return s.store, s.err
}

// closeTimeout bounds the end of the embedded etcd.
const closeTimeout = 10 * time.Second

// Close ends the opening, and closes what has been opened.
func (s *Opening) Close() error {
	s.cancel()
	<-s.done
	if s.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.store.Close(ctx)
}
