package sdk

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// callQuiet is how long nothing comes of a stream that is between two of its events.
	callQuiet = 50 * time.Millisecond
	// callRest is how long a stream may go on that is never quiet.
	callRest = 2 * time.Second
)

// endWithDrain has the response to a call come to a proper end when the request that it is made for is to end, if it
// would not end by itself: a watch has no deadline, and its length is unknown. It ends when nothing has come for a
// moment, and not in the middle of an event.
func endWithDrain(resp *http.Response) error {
	ctx := resp.Request.Context()
	_, limited := ctx.Deadline()
	if limited || resp.ContentLength >= 0 || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	if draining := DrainingFrom(ctx); draining != nil {
		s := &callStream{body: resp.Body, over: make(chan struct{})}
		resp.Body = s
		go s.endAfter(draining)
	}
	return nil
}

// callStream is the body of a response that ends when the stage drains.
type callStream struct {
	body  io.ReadCloser
	reads atomic.Int64 // that have returned something
	ended atomic.Bool
	once  sync.Once
	over  chan struct{} // closed by Close
}

func (s *callStream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.reads.Add(1)
	}
	if err != nil && s.ended.Load() {
		err = io.EOF
	}
	return n, err
}

func (s *callStream) Close() error {
	s.once.Do(func() { close(s.over) })
	return s.body.Close()
}

// endAfter ends the body when it is quiet after draining is closed.
func (s *callStream) endAfter(draining <-chan struct{}) {
	select {
	case <-draining:
	case <-s.over:
		return
	}
	for rest := callRest; rest > 0; rest -= callQuiet {
		before := s.reads.Load()
		select {
		case <-time.After(callQuiet):
		case <-s.over:
			return
		}
		if s.reads.Load() == before {
			break
		}
	}
	s.ended.Store(true)
	_ = s.body.Close()
}
