package apiserver

import (
	"net/http"
	"strings"
	"time"

	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"

	"github.com/catena-dev/catena/sdk"
)

// Delegate returns the end of a server's delegation chain inside the stage: it
// declines, so that the host asks the next stage of the chain.
func (a *Adapter) Delegate() genericapiserver.DelegationTarget {
	return genericapiserver.NewEmptyDelegateWithCustomHandler(http.HandlerFunc(a.Decline))
}

// Decline tells the host that the request is not for this stage.
//
// While the server has not installed all its paths it cannot know that. Then
// only what a stage downstream lists as its own is declined, and all else
// waits until the server knows, as it does in a moment after a restart. If that
// takes long, the response is 503, as that of Kubernetes' not-found handler: a false
// 404, or the response of a stage that is not meant, can make controllers delete
// live objects.
func (a *Adapter) Decline(w http.ResponseWriter, r *http.Request) {
	h := hostRequestFrom(r.Context())
	if h == nil {
		// The server talks to its delegate itself; there is no other stage to ask.
		http.NotFound(w, r)
		return
	}
	incomplete := !h.held && !genericapifilters.NoMuxAndDiscoveryIncompleteKey(r.Context())
	if incomplete && !a.listedDownstream(r.URL.Path) {
		if !a.awaitComplete(r) {
			notfoundhandler.New(a.serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey).ServeHTTP(w, r)
			return
		}
		h.held = true
		h.handle()
		return
	}
	h.finished = true
	sdk.Decline(h.original)
}

// completeTimeout is how long requests wait for paths that are being installed.
const completeTimeout = 5 * time.Second

// awaitComplete waits until the server has installed all its paths. It returns
// false if that takes too long, or if the request or the stage ends before.
func (a *Adapter) awaitComplete(r *http.Request) bool {
	timeout := time.NewTimer(a.completeTimeout)
	defer timeout.Stop()
	select {
	case <-a.complete:
		return true
	case <-r.Context().Done():
	case <-a.env.Draining():
	case <-timeout.C:
	}
	return false
}

// listedDownstream reports whether a stage downstream lists path, or a group
// version or another path above it.
func (a *Adapter) listedDownstream(path string) bool {
	for _, delegate := range a.env.Delegates() {
		for _, listed := range delegate.ListedPaths {
			if listed == "/" || listed == "/apis" || listed == "/apis/" {
				continue
			}
			if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(listed, "/")); ok && (rest == "" || rest[0] == '/') {
				return true
			}
		}
	}
	return false
}
