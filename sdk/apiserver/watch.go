package apiserver

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
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
	// asked is set if the host can go on with the watch in another process, and promised if it may. Bookmarks reports
	// whether there are some that the client does not want, for the host, and compressed that the host is to compress
	// it.
	asked, promised, bookmarks, compressed bool
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

// forHost changes a watch of the server's etcd that is about to begin so that the host can go on with it. It sends
// bookmarks, which the host passes on to who wants them: each says up to where the client has everything. With initial
// events, the first would be their end, for which Kubernetes' handler has no room if the client does not want it. And
// it is not compressed, as such watches are if their clients like: that is left to the host, which looks at the events.
func forHost(ctx context.Context, opts *storage.ListOptions) {
	h := hostRequestFrom(ctx)
	if h == nil || h.watch == nil || !h.watch.asked || h.watch.streams.Load() > 0 {
		return
	}
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	switch {
	case !initial:
		h.watch.bookmarks = !opts.Predicate.AllowWatchBookmarks
		opts.ProgressNotify, opts.Predicate.AllowWatchBookmarks = true, true
	case opts.Predicate.AllowWatchBookmarks && compressesWatches() && acceptsGzip(h.r.Header):
		h.watch.compressed = true
		h.r.Header.Del("Accept-Encoding") // the handler looks at it when the watch has begun
	}
}

// compressesWatches reports whether Kubernetes' handler compresses watches that begin with initial events. Releases
// before 1.37 do not have the feature.
func compressesWatches() bool {
	const feature = "WatchListCompression"
	_, known := utilfeature.DefaultMutableFeatureGate.GetAll()[feature]
	return known && utilfeature.DefaultFeatureGate.Enabled(feature)
}

// acceptsGzip reports whether Kubernetes' handler would compress a response to a request with such headers.
func acceptsGzip(h http.Header) bool {
	for encoding := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(encoding) == "gzip" {
			return true
		}
	}
	return false
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
	switch s.promised = s.asked && s.streams.Load() == 1; {
	case s.promised && s.compressed:
		sdk.SetHostHeader(w, stagev1.HeaderWatch, header.WatchGzip)
	case s.promised:
		sdk.SetHostHeader(w, stagev1.HeaderWatch, header.WatchResumable)
	case s.bookmarks:
		sdk.SetHostHeader(w, stagev1.HeaderWatch, header.WatchBookmarks)
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
