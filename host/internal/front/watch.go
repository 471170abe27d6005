package front

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// trackWatch returns a request and a writer that give the seats of a watch back to priority and
// fairness. In kube-apiserver the watch cache does that, when it has sent the initial events. It is
// in the stage, which says in the head of its response whether there are any that it has yet to send,
// and later that it has (see WatchInitialized); if not, the seats come back when the response starts.
func trackWatch(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	if info, ok := request.RequestInfoFrom(r.Context()); !ok || info.Verb != "watch" {
		return w, r
	}
	tracked := &watchWriter{ResponseWriter: w, ctx: r.Context()}
	return responsewriter.WrapForHTTP1Or2(tracked), r.WithContext(context.WithValue(tracked.ctx, watchKey{}, tracked))
}

// WatchInitialized gives back the seats of the watch that ctx belongs to: it has sent its
// initial events.
func WatchInitialized(ctx context.Context) { utilflowcontrol.WatchInitialized(ctx) }

// watchInitializing keeps the seats of the watch that ctx belongs to until WatchInitialized.
func watchInitializing(ctx context.Context) {
	if w, ok := ctx.Value(watchKey{}).(*watchWriter); ok {
		w.initializing = true
	}
}

type watchKey struct{}

type watchWriter struct {
	http.ResponseWriter
	ctx     context.Context
	started bool
	// initializing is set before the response starts if initial events follow it.
	initializing bool
}

func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watchWriter) start() {
	if !w.started {
		w.started = true
		if !w.initializing {
			utilflowcontrol.WatchInitialized(w.ctx)
		}
	}
}

func (w *watchWriter) WriteHeader(code int) {
	w.start()
	w.ResponseWriter.WriteHeader(code)
}

func (w *watchWriter) Write(p []byte) (int, error) {
	w.start()
	return w.ResponseWriter.Write(p)
}

func (w *watchWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.start()
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
