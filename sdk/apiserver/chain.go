package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/tracing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// buildHandlerChain stands in for genericapiserver.DefaultBuildHandlerChain.
// The filters of that chain have run in the host; what is left is to put onto
// the request's context what they would have left there, and to send back to
// the host what the handlers leave there.
func (a *Adapter) buildHandlerChain(handler http.Handler, c *genericapiserver.Config) http.Handler {
	maps.Copy(a.checkGroups, groups(c))
	handler = withTracing(handler, c.TracerProvider)
	handler = a.withHostContext(handler, c.RequestInfoResolver)
	handler = genericapifilters.WithMuxAndDiscoveryComplete(handler, a.complete)
	return handler
}

// withTracing is Kubernetes' filter for those requests that have a trace or could
// begin one; for all others it would only cost half of what the chain costs.
func withTracing(handler http.Handler, provider tracing.TracerProvider) http.Handler {
	traced := genericapifilters.WithTracing(handler, provider)
	if reflect.TypeOf(provider) != reflect.TypeOf(tracing.NewNoopTracerProvider()) {
		return traced
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Traceparent") != "" || r.Header.Get("Baggage") != "" {
			traced.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// withHostContext makes the request's context from the host's headers.
func (a *Adapter) withHostContext(handler http.Handler, resolver request.RequestInfoResolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			responsewriters.InternalError(w, r, fmt.Errorf("failed to create RequestInfo: %w", err))
			return
		}
		h := &hostRequest{Context: r.Context(), adapter: a, original: w, info: info,
			received: receivedAt(header.First(r.Header, stagev1.HeaderReceived))}
		h.user = hostUser{ctx: h.Context, header: header.First(r.Header, stagev1.HeaderUser)}
		h.trackLatency(header.First(r.Header, stagev1.HeaderLatency))
		h.startAudit(header.First(r.Header, stagev1.HeaderAuditLevel), r.Header.Get(auditinternal.HeaderAuditID))
		for _, name := range r.Header[stagev1.HeaderAdded] {
			r.Header.Del(name) // the context has it
		}
		var ctx context.Context = h
		if ctx, h.watch = withWatchSignal(ctx, a.env.Initializing); h.watch != nil {
			h.watch.asked = header.First(r.Header, stagev1.HeaderWatch) != ""
		}
		dropHostHeaders(r.Header)
		h.handler, h.w, h.r = handler, w, r.WithContext(ctx)
		if h.audited || h.watch != nil {
			sdk.HoldResponse(w, h.finish)
			defer h.finishLate()
		}
		h.handle()
	})
}

// dropHostHeaders keeps the host's headers from servers to which a handler
// proxies the request.
func dropHostHeaders(h http.Header) {
	for name := range h {
		if len(name) > len(stagev1.HeaderPrefix) && name[:len(stagev1.HeaderPrefix)] == stagev1.HeaderPrefix {
			delete(h, name)
		}
	}
}

// queueWait names the time in the queues of priority and fairness, in stagev1.HeaderLatency of a request.
const queueWait = "apf-queue-wait="

// trackLatency is Kubernetes' filter, which leaves watches out. The time of the request in queues was the host's.
func (h *hostRequest) trackLatency(spent string) {
	if h.info.Verb == "watch" {
		return
	}
	h.trackers = h.durations.start()
	number, _ := strings.CutPrefix(spent, queueWait)
	if waited, err := strconv.ParseInt(number, 10, 64); err == nil {
		h.durations.queue.TrackDuration(time.Duration(waited))
	}
}

func receivedAt(micros string) time.Time {
	n, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return time.Now()
	}
	return time.UnixMicro(n)
}
