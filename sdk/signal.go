package sdk

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Signal returns a channel that is closed when the server has come to a lifecycle
// signal, by its name in kube-apiserver: HasBeenReady, MuxAndDiscoveryComplete,
// ShutdownInitiated, AfterShutdownDelayDuration, PreShutdownHooksStopped,
// NotAcceptingNewRequest, InFlightRequestsDrained or HTTPServerStoppedListening. For a
// process that starts after a signal, the channel is closed soon after PrepareRun. A host
// that does not send signals never closes any.
func (e *Env) Signal(name string) <-chan struct{} { return e.signals.channel(name) }

// signals are the channels of the server's lifecycle signals. The zero value is ready.
type signals struct {
	mu       sync.Mutex
	channels map[string]chan struct{}
	come     map[string]bool
}

func (s *signals) channel(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[name]
	if ch == nil {
		if s.channels == nil {
			s.channels, s.come = map[string]chan struct{}{}, map[string]bool{}
		}
		ch = make(chan struct{})
		s.channels[name] = ch
	}
	return ch
}

// signal closes the channel of a signal, once.
func (s *signals) signal(name string) {
	ch := s.channel(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.come[name] {
		s.come[name] = true
		close(ch)
	}
}

// Notify closes the channel of a signal.
func (s *Service) Notify(_ context.Context, req *stagev1.NotifyRequest) (*stagev1.NotifyResponse, error) {
	env, err := s.configured()
	if err != nil {
		return nil, err
	}
	s.log.Debug("the server has come to a lifecycle signal", "signal", req.GetSignal(), "at", req.GetAt().AsTime())
	env.signals.signal(req.GetSignal())
	return &stagev1.NotifyResponse{}, nil
}

// Activate makes a stage that was configured as a standby serve its data socket.
func (s *Service) Activate(context.Context, *stagev1.ActivateRequest) (*stagev1.ActivateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.standby || !s.prepared || s.server != nil || s.stopping {
		return nil, status.Error(codes.FailedPrecondition, "Activate follows PrepareRun of a standby, once")
	}
	s.server = s.serve()
	return &stagev1.ActivateResponse{}, nil
}
