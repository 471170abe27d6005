package apiserver

import (
	"maps"
	"strconv"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// finish puts what the handlers have left for the host into the head of the response. It is called before that is
// written, which for a short response is after they have returned. Only then do Kubernetes' handlers note that an
// API is deprecated, and how long it took to write.
func (h *hostRequest) finish() {
	h.finished = true
	if h.watch != nil {
		h.watch.begin(h.original)
		h.watch.promise(h.original)
	}
	if !h.audited {
		return
	}
	h.sent = h.latencies()
	if value := durations(h.sent); value != "" {
		sdk.SetHostHeader(h.original, stagev1.HeaderLatency, value)
	}
	if value := h.sendAudit(); value != "" {
		sdk.SetHostHeader(h.original, stagev1.HeaderAudit, value)
	}
}

// finishLate puts what they have left since then behind the body.
func (h *hostRequest) finishLate() {
	if h.watch != nil {
		h.watch.end(h.Context, h.original)
	}
	if !h.audited || !h.finished {
		return // there is nothing to tell, or the head is yet to be written
	}
	before := h.captured.Annotations
	h.capture()
	late := auditResult{Annotations: h.captured.Annotations}
	maps.DeleteFunc(late.Annotations, func(key, _ string) bool { _, known := before[key]; return known })
	if value := late.header(); value != "" {
		sdk.SetHostTrailer(h.original, stagev1.HeaderAudit, value)
	}
	more := h.latencies()
	for i, sent := range h.sent {
		more[i] -= sent
	}
	if value := durations(more); value != "" {
		sdk.SetHostTrailer(h.original, stagev1.HeaderLatency, value)
	}
}

// latencyNames are the names of what latencies returns.
var latencyNames = [...]string{
	"etcd", "transform-response-object", "serialize-response-object", "response-write", "decode-response-object",
	"mutating-webhook", "validating-webhook", "authorization",
}

// latencies are the times that Kubernetes tracks.
func (h *hostRequest) latencies() (all [len(latencyNames)]time.Duration) {
	trackers := h.trackers
	if trackers == nil {
		return all
	}
	for i, tracker := range [...]request.DurationTracker{
		trackers.StorageTracker, trackers.TransformTracker, trackers.SerializationTracker,
		trackers.ResponseWriteTracker, trackers.DecodeTracker,
		trackers.MutatingWebhookTracker, trackers.ValidatingWebhookTracker, trackers.AuthorizationTracker,
	} {
		all[i] = tracker.GetLatency()
	}
	return all
}

// durations lists those that are not zero, in nanoseconds.
func durations(all [len(latencyNames)]time.Duration) string {
	var out []byte
	for i, spent := range all {
		if spent <= 0 {
			continue
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = append(append(out, latencyNames[i]...), '=')
		out = strconv.AppendInt(out, spent.Nanoseconds(), 10)
	}
	return string(out)
}
