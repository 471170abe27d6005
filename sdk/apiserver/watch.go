package apiserver

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// watchSignal is the initialization signal of a watch. Kubernetes' watch cache sends it when the
// initial events are sent, for priority and fairness, which is in the host.
type watchSignal struct {
	utilflowcontrol.InitializationSignal
	initializing func(http.ResponseWriter) func()
	// asked is set if the host can go on with the watch in another process, and promised if it may.
	asked, promised bool
	// streams are the watches of the server's etcd that the response is made of.
	streams atomic.Int32

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

// countStream is told of each watch of the server's etcd.
func countStream(ctx context.Context) {
	if h := hostRequestFrom(ctx); h != nil && h.watch != nil {
		h.watch.streams.Add(1)
	}
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

// promise says, before the response begins, that another process of the stage can go on with it: it is what one watch of the
// server's etcd sends.
func (s *watchSignal) promise(w http.ResponseWriter) {
	if s.promised = s.asked && s.streams.Load() == 1; s.promised {
		sdk.SetHostHeader(w, stagev1.HeaderWatch, header.WatchResumable)
	}
}

// end says, behind the body, that it has ended because it was told to.
func (s *watchSignal) end(ctx context.Context, w http.ResponseWriter) {
	if !s.promised {
		return
	}
	select {
	case <-sdk.DrainingFrom(ctx):
		sdk.SetHostTrailer(w, stagev1.HeaderWatch, header.WatchDraining)
	default:
	}
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
