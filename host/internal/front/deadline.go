package front

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/host/internal/relay"
)

// handledKey is the key of the channel that is closed when the filters have handled a request.
type handledKey struct{}

// withHandled returns the request with that channel, and the function that closes it.
func withHandled(r *http.Request) (*http.Request, func()) {
	handled := make(chan struct{})
	return r.WithContext(context.WithValue(r.Context(), handledKey{}, handled)), func() { close(handled) }
}

// awaitTimeout returns false if the timeout filter does not respond to a request that got
// no response from its stage, and otherwise true when it has.
//
// When the time of a request is over, Kubernetes' timeout filter responds with 504, or
// breaks the connection if a part of another response has been written. It does that on its
// own goroutine: a handler that notices the deadline, too, must neither write nor return
// before.
func (f *Frontend) awaitTimeout(r *http.Request, e *relay.StageError) bool {
	ctx := r.Context()
	if e.Kind != relay.Canceled || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || f.longRunning(r, info) {
		return false
	}
	handled, ok := ctx.Value(handledKey{}).(chan struct{})
	if ok {
		<-handled
	}
	return ok
}
