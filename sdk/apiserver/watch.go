package apiserver

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// watchSignal is the initialization signal of a watch. Kubernetes' watch cache sends it when the
// initial events are sent, for priority and fairness, which is in the host.
type watchSignal struct {
	utilflowcontrol.InitializationSignal
	initializing func(http.ResponseWriter) func()

	mu          sync.Mutex
	sent        bool
	initialized func() // nil until the response begins
}

// withWatchSignal returns the context and the signal of a watch; the signal is nil for any
// other request.
func withWatchSignal(ctx context.Context, initializing func(http.ResponseWriter) func()) (context.Context, *watchSignal) {
	if info, ok := request.RequestInfoFrom(ctx); !ok || info.Verb != "watch" {
		return ctx, nil
	}
	s := &watchSignal{InitializationSignal: utilflowcontrol.NewInitializationSignal(), initializing: initializing}
	return utilflowcontrol.WithInitializationSignal(ctx, s), s
}

// Signal implements utilflowcontrol.InitializationSignal.
func (s *watchSignal) Signal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = true
	if s.initialized != nil {
		s.initialized()
	}
	s.InitializationSignal.Signal()
}

// begin is called before the response begins. If the signal has come already, there is nothing
// that the host does not know from the response.
func (s *watchSignal) begin(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sent {
		s.initialized = s.initializing(w)
	}
}
