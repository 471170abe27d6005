package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/guard"
)

const (
	// alivePause is how long a call waits for the host before the client asks whether the host is alive, and from then
	// on between two questions.
	alivePause = 5 * time.Second
	// aliveTimeout is how long the host may take to say so.
	aliveTimeout = 10 * time.Second
)

// SilentError is why a call has no result: there is a host, and it does not respond.
type SilentError struct {
	PID int // 0 if the system does not say
}

func (e *SilentError) Error() string {
	host := "the host"
	if e.PID != 0 {
		host = fmt.Sprintf("the host (process %d)", e.PID)
	}
	return fmt.Sprintf("%s has not responded within %s: it is stopped, or has too much to do", host, aliveTimeout)
}

// Watch returns a context that ends when the host does not say any more that it is alive; its cause is a *SilentError
// then. A host that has ended is for the caller to see. Stop is due.
func (c *Client) Watch(ctx context.Context) (watched context.Context, stop func()) {
	return c.watch(ctx, &atomic.Bool{})
}

// watch is Watch, and calls Waiting each time the host has said that it is alive, unless it is done.
func (c *Client) watch(ctx context.Context, done *atomic.Bool) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	began := time.Now()
	go func() {
		for {
			select {
			case <-watched.Done():
				return
			case <-time.After(alivePause):
			}
			if err := c.alive(watched); err != nil {
				cancel(err)
				return
			}
			if c.Waiting != nil && !done.Load() && watched.Err() == nil {
				c.Waiting(time.Since(began))
			}
		}
	}()
	return watched, func() { cancel(nil) }
}

// alive returns a *SilentError if the host does not respond.
func (c *Client) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	silent := &SilentError{}
	client := c.http(func(conn net.Conn, _ int) {
		if peer, err := guard.PeerOf(conn); err == nil {
			silent.PID = peer.PID
		}
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://catena/", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err == nil {
		return resp.Body.Close() // whatever it says, it is alive
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return silent
	}
	return nil
}

// silence is the *SilentError with which a context has ended; otherwise it is err.
func silence(ctx context.Context, err error) error {
	if silent := (*SilentError)(nil); err != nil && errors.As(context.Cause(ctx), &silent) {
		return silent
	}
	return err
}

// watchedBody is a response that ends when the host is silent.
type watchedBody struct {
	io.ReadCloser
	watched context.Context
	stop    func()
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, silence(b.watched, err)
}

func (b *watchedBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}
