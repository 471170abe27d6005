package apiserver

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/tracing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// buildHandlerChain stands in for genericapiserver.DefaultBuildHandlerChain.
// The filters of that chain have run in the host; what is left is to put onto
// the request's context what they would have left there, and to send back to
// the host what the handlers leave there.
func (a *Adapter) buildHandlerChain(handler http.Handler, c *genericapiserver.Config) http.Handler {
	maps.Copy(a.checkGroups, groups(c))
	handler = withTracing(handler, c.TracerProvider)
	handler = genericapifilters.WithWarningRecorder(handler)
	handler = a.withHostContext(handler)
	handler = genericapifilters.WithRequestInfo(handler, c.RequestInfoResolver)
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

// withHostContext restores the request's context from the host's headers.
func (a *Adapter) withHostContext(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &hostRequest{env: a.env, original: w}
		ctx := context.WithValue(r.Context(), hostRequestKey{}, h)
		if r.Header.Get(stagev1.HeaderUser) != "" {
			ctx = request.WithUser(ctx, hostUser{ctx})
		}
		ctx = request.WithReceivedTimestamp(ctx, receivedAt(r.Header.Get(stagev1.HeaderReceived)))
		ctx = withLatencyTrackers(ctx, r.Header.Get(stagev1.HeaderLatency))
		ctx = request.WithServerShutdownSignal(ctx, a)
		ctx = audit.WithAuditContext(ctx)
		audit.WithAuditID(ctx, types.UID(r.Header.Get(auditinternal.HeaderAuditID)))
		h.startAudit(ctx, r.Header.Get(stagev1.HeaderAuditLevel))
		for _, name := range r.Header[stagev1.HeaderAdded] {
			r.Header.Del(name) // the context has it
		}
		dropHostHeaders(r.Header)
		ctx, h.watch = withWatchSignal(ctx, a.env.Initializing)
		h.ctx = ctx
		h.handler, h.w, h.r = handler, w, r.WithContext(ctx)
		if h.audited || h.watch != nil {
			sdk.HoldResponse(w, h.finish)
			defer h.finishLate()
		}
		h.handle()
	})
}

// ShuttingDown makes the adapter the server shutdown signal of its requests:
// when it comes, watches end.
func (a *Adapter) ShuttingDown() <-chan struct{} { return a.env.Draining() }

// dropHostHeaders keeps the host's headers from servers to which a handler
// proxies the request.
func dropHostHeaders(header http.Header) {
	for name := range header {
		if len(name) > len(stagev1.HeaderPrefix) && name[:len(stagev1.HeaderPrefix)] == stagev1.HeaderPrefix {
			delete(header, name)
		}
	}
}

// queueWait names the time in the queues of priority and fairness, in stagev1.HeaderLatency of a request.
const queueWait = "apf-queue-wait="

// withLatencyTrackers is Kubernetes' filter, which leaves watches out. The time of the request in queues was the host's.
func withLatencyTrackers(ctx context.Context, spent string) context.Context {
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Verb == "watch" {
		return ctx
	}
	ctx = request.WithLatencyTrackers(ctx)
	number, _ := strings.CutPrefix(spent, queueWait)
	if waited, err := strconv.ParseInt(number, 10, 64); err == nil {
		request.TrackAPFQueueWaitLatency(ctx, time.Duration(waited))
	}
	return ctx
}

func receivedAt(micros string) time.Time {
	n, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return time.Now()
	}
	return time.UnixMicro(n)
}

// hostRequest is one request from the host.
type hostRequest struct {
	env *sdk.Env
	// original is the writer of the host's request, without any filter.
	original http.ResponseWriter
	ctx      context.Context
	captured auditResult
	audited  bool
	// finished is set once what goes back to the host is in the response's header; sent has the durations of that.
	finished bool
	sent     [len(latencyNames)]time.Duration
	// watch is nil if the request is none.
	watch *watchSignal
	// The server's handler and what it gets.
	handler http.Handler
	w       http.ResponseWriter
	r       *http.Request
	// held is set when the request is handled for the second time, after it has had to
	// wait for the server's paths.
	held bool
}

func (h *hostRequest) handle() { h.handler.ServeHTTP(h.w, h.r) }

type hostRequestKey struct{}

// hostRequestFrom returns the host's request that ctx belongs to, nil if the
// server has made up the request itself.
func hostRequestFrom(ctx context.Context) *hostRequest {
	h, _ := ctx.Value(hostRequestKey{}).(*hostRequest)
	return h
}
