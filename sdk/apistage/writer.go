package apistage

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// resultWriter adds to the head of the response what the handlers have left for
// the host. By the time a handler writes the head, Kubernetes has logged all
// bodies, annotations and times of a request that is not a stream.
type resultWriter struct {
	http.ResponseWriter
	request *hostRequest
}

func (w *resultWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *resultWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.request.finish()
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *resultWriter) Write(body []byte) (int, error) {
	w.request.finish()
	return w.ResponseWriter.Write(body)
}

func (w *resultWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.request.finished = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// finish puts what goes back to the host into the response's head, once.
func (h *hostRequest) finish() {
	if h.finished {
		return
	}
	h.finished = true
	if latency := latencies(h); latency != "" {
		sdk.SetHostHeader(h.original, stagev1.HeaderLatency, latency)
	}
	if h.watch != nil {
		h.watch.begin(h.original)
	}
	if !h.audited {
		return
	}
	if value := h.auditHeader(); value != "" {
		sdk.SetHostHeader(h.original, stagev1.HeaderAudit, value)
	}
}

// latencies lists the times that Kubernetes tracks, in nanoseconds.
func latencies(h *hostRequest) string {
	trackers, ok := request.LatencyTrackersFrom(h.ctx)
	if !ok {
		return ""
	}
	var out []byte
	add := func(name string, tracker request.DurationTracker) {
		spent := tracker.GetLatency()
		if spent == 0 {
			return
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = append(append(out, name...), '=')
		out = strconv.AppendInt(out, int64(spent/time.Nanosecond), 10)
	}
	add("etcd", trackers.StorageTracker)
	add("transform-response-object", trackers.TransformTracker)
	add("serialize-response-object", trackers.SerializationTracker)
	add("response-write", trackers.ResponseWriteTracker)
	add("decode-response-object", trackers.DecodeTracker)
	add("mutating-webhook", trackers.MutatingWebhookTracker)
	add("validating-webhook", trackers.ValidatingWebhookTracker)
	add("authorization", trackers.AuthorizationTracker)
	return string(out)
}
