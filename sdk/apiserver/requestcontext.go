package apiserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/catena-dev/catena/sdk"
)

// hostRequest is one request from the host, and its context: all that Kubernetes' filters would leave there, in one
// object. A context for each would cost a request more than all else in the chain, and so would each lookup through
// them.
type hostRequest struct {
	context.Context // the SDK's
	adapter         *Adapter
	// original is the writer of the host's request, without any filter.
	original http.ResponseWriter

	info     *request.RequestInfo
	user     hostUser
	received time.Time
	audit    audit.AuditContext
	// trackers is nil for a watch.
	trackers  *request.LatencyTrackers
	durations latencyTrackers
	warnings  sync.Once
	recorder  any

	captured auditResult
	audited  bool
	// finished is set once what goes back to the host is in the response's header; sent has the durations of that.
	finished bool
	sent     [len(latencyNames)]time.Duration
	// watch is nil if the request is for no watch.
	watch *watchSignal
	// The server's handler and what it gets.
	handler http.Handler
	w       http.ResponseWriter
	r       *http.Request
	// held is set when the request is handled for the second time, after it has had to
	// wait for the server's paths.
	held bool
}

// ShuttingDown makes a request its own shutdown signal: watches end one after the other, in the time that the host
// allows.
func (h *hostRequest) ShuttingDown() <-chan struct{} { return sdk.DrainingFrom(h.Context) }

func (h *hostRequest) handle() { h.handler.ServeHTTP(h.w, h.r) }

type hostRequestKey struct{}

// hostRequestFrom returns the host's request that ctx belongs to, nil if the
// server has made up the request itself.
func hostRequestFrom(ctx context.Context) *hostRequest {
	h, _ := ctx.Value(hostRequestKey{}).(*hostRequest)
	return h
}

// Value returns what Kubernetes' filters would have put into the context.
func (h *hostRequest) Value(key any) any {
	keys := &h.adapter.keys
	switch key {
	case hostRequestKey{}:
		return h
	case keys.info:
		return h.info
	case keys.trackers:
		if h.trackers != nil {
			return h.trackers
		}
	case keys.audit:
		return &h.audit
	case keys.user:
		if h.user.header != "" {
			return &h.user
		}
	case keys.received:
		return h.received
	case keys.shutdown:
		return h
	case keys.warnings:
		h.warnings.Do(h.makeRecorder)
		return h.recorder
	}
	return h.Context.Value(key)
}

// makeRecorder takes the recorder of warnings from Kubernetes' filter. Few requests need one.
func (h *hostRequest) makeRecorder() {
	taken := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h.recorder = r.Context().Value(h.adapter.keys.warnings) })
	genericapifilters.WithWarningRecorder(taken).ServeHTTP(h.original, (&http.Request{}).WithContext(h.Context))
}

// contextKeys are the keys by which Kubernetes' code asks a context for what its filters leave there. They are not exported.
type contextKeys struct{ info, user, received, trackers, audit, shutdown, warnings any }

// findKeys learns them from that code.
func findKeys() contextKeys {
	var asked any
	ctx := askedContext{Context: context.Background(), key: &asked}
	key := func(ask func()) any {
		asked = nil
		ask()
		return asked
	}
	return contextKeys{
		info:     key(func() { request.RequestInfoFrom(ctx) }),
		user:     key(func() { request.UserFrom(ctx) }),
		received: key(func() { request.ReceivedTimestampFrom(ctx) }),
		trackers: key(func() { request.LatencyTrackersFrom(ctx) }),
		audit:    key(func() { audit.AuditContextFrom(ctx) }),
		shutdown: key(func() { request.ServerShutdownSignalFrom(ctx) }),
		warnings: key(func() { warning.AddWarning(ctx, "", "") }),
	}
}

// askedContext has no values, and keeps the key of the one that it was asked for last.
type askedContext struct {
	context.Context
	key *any
}

func (c askedContext) Value(key any) any {
	*c.key = key
	return nil
}
