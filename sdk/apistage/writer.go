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

// carrierWriter adds to the head of the answer what the handlers have left for
// the host. By the time a handler writes the head, upstream has logged all
// bodies, annotations and times of a request that is not a stream.
type carrierWriter struct {
	http.ResponseWriter
	exchange *exchange
}

func (w *carrierWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *carrierWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.exchange.finish()
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *carrierWriter) Write(body []byte) (int, error) {
	w.exchange.finish()
	return w.ResponseWriter.Write(body)
}

func (w *carrierWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.exchange.finished = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// finish puts what goes back to the host into the answer's head, once.
func (x *exchange) finish() {
	if x.finished {
		return
	}
	x.finished = true
	if latency := latencies(x); latency != "" {
		sdk.SetHostHeader(x.original, stagev1.HeaderLatency, latency)
	}
	if !x.audited {
		return
	}
	if value := x.auditHeader(); value != "" {
		sdk.SetHostHeader(x.original, stagev1.HeaderAudit, value)
	}
}

// latencies lists the times that upstream tracks, in nanoseconds.
func latencies(x *exchange) string {
	trackers, ok := request.LatencyTrackersFrom(x.ctx)
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
