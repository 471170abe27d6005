package front

import (
	"context"
	"sync"
	"time"
)

// The lifecycle signals of a server, with Kubernetes' names.
const (
	MuxAndDiscoveryComplete    = "MuxAndDiscoveryComplete"
	HasBeenReady               = "HasBeenReady"
	ShutdownInitiated          = "ShutdownInitiated"
	AfterShutdownDelayDuration = "AfterShutdownDelayDuration"
	PreShutdownHooksStopped    = "PreShutdownHooksStopped"
	NotAcceptingNewRequest     = "NotAcceptingNewRequest"
	InFlightRequestsDrained    = "InFlightRequestsDrained"
	HTTPServerStoppedListening = "HTTPServerStoppedListening"
)

// signals reports the lifecycle signals as they come. Kubernetes' server does not export all
// of its own: the others are derived from their causes, in the documented order.
type signals struct {
	observe func(name string, at time.Time)

	mu   sync.Mutex
	seen map[string]bool
}

// came reports a signal, once.
func (s *signals) came(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[name] {
		return
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[name] = true
	if s.observe != nil {
		s.observe(name, time.Now())
	}
}

// Draining returns a channel that is closed when the server stops accepting
// requests: after the shutdown delay and the pre-shutdown hooks. From then on
// stages have to end their watches, for which Run waits.
func (f *Frontend) Draining() <-chan struct{} { return f.draining }

// followShutdown reports the signals of a shutdown and returns when all have come.
func (f *Frontend) followShutdown(hooksDone <-chan struct{}) {
	<-f.initiated
	f.signals.came(ShutdownInitiated)
	var both sync.WaitGroup
	both.Go(func() {
		time.Sleep(f.server.ShutdownDelayDuration)
		f.signals.came(AfterShutdownDelayDuration)
	})
	both.Go(func() {
		<-hooksDone
		f.signals.came(PreShutdownHooksStopped)
	})
	both.Wait()
	f.signals.came(NotAcceptingNewRequest)
	close(f.draining)
	listening := f.listener.closed
	if f.server.ShutdownSendRetryAfter {
		<-f.drained // the listener is closed after that
		f.signals.came(InFlightRequestsDrained)
	}
	both.Go(func() {
		<-listening
		f.signals.came(HTTPServerStoppedListening)
	})
	both.Go(func() {
		<-f.drained
		f.signals.came(InFlightRequestsDrained)
	})
	both.Wait()
}

// followStart reports when all paths have been installed.
func (f *Frontend) followStart(ctx context.Context) {
	for _, signal := range f.server.MuxAndDiscoveryCompleteSignals() {
		select {
		case <-signal:
		case <-ctx.Done():
			return
		}
	}
	f.signals.came(MuxAndDiscoveryComplete)
}
