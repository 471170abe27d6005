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

// trackWatch returns a writer that gives the seats of a watch back to priority and fairness
// when the response starts. In kube-apiserver the watch cache does that, when the initial
// events have been read; there is none in this process, and without the signal a watch
// would hold its seats until it ended.
func trackWatch(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if info, ok := request.RequestInfoFrom(r.Context()); !ok || info.Verb != "watch" {
		return w
	}
	return responsewriter.WrapForHTTP1Or2(&watchWriter{ResponseWriter: w, ctx: r.Context()})
}

type watchWriter struct {
	http.ResponseWriter
	ctx     context.Context
	started bool
}

func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watchWriter) start() {
	if !w.started {
		w.started = true
		utilflowcontrol.WatchInitialized(w.ctx)
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
