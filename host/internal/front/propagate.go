package front

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/tracing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/internal/requestinfo"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Propagator passes the values that Kubernetes' servers keep in a request's context to a
// stage and back, in headers. It implements relay.Propagator.
type Propagator struct {
	// omits reports whether the audit policy omits managed fields for a request; nil if
	// it never does.
	omits func(ctx context.Context, ac *audit.AuditContext) bool
}

var _ relay.Propagator = (*Propagator)(nil)

// newPropagator returns a propagator for a server with an audit policy, which may be nil.
func newPropagator(policy *auditPolicy) *Propagator {
	if policy == nil {
		return &Propagator{}
	}
	return &Propagator{omits: policy.omitsManagedFields}
}

// prepare prepares the headers of a request for the chain. Kubernetes' filters have removed
// those with the client's identity; prepare removes those that are for host and stages
// only, and adds the trace.
func (c *Propagator) prepare(r *http.Request) {
	for name := range r.Header {
		if strings.HasPrefix(name, stagev1.HeaderPrefix) {
			delete(r.Header, name)
		}
	}
	// The span of this server, the parent of the stage's, replaces the client's.
	if span := trace.SpanContextFromContext(r.Context()); span.IsValid() && !span.IsRemote() {
		tracing.Propagators().Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	}
}

// AppendRequestHeaders appends the headers for a stage, each a complete line.
func (c *Propagator) AppendRequestHeaders(dst []byte, r *http.Request) []byte {
	ctx := r.Context()
	if u, ok := request.UserFrom(ctx); ok {
		dst = append(dst, stagev1.HeaderUser+": "...)
		dst = appendUser(dst, u)
		dst = append(dst, "\r\n"...)
	}
	if info, ok := request.RequestInfoFrom(ctx); ok {
		dst = requestinfo.Append(dst, info)
	} else if info, err := requestinfo.Factory().NewRequestInfo(r); err == nil { // discovery of delegates passes no filters
		dst = requestinfo.Append(dst, info)
	}
	if deadline, ok := ctx.Deadline(); ok {
		// Rounded up, so that the host's timeout comes first. At least 1, since a stage takes
		// 0 for no deadline.
		left := max((time.Until(deadline) + time.Millisecond - 1).Milliseconds(), 1)
		dst = appendIntHeader(dst, stagev1.HeaderTimeout, left)
	}
	if _, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		dst = append(append(append(dst, stagev1.HeaderClient+": "...), r.RemoteAddr...), "\r\n"...)
	}
	if received, ok := request.ReceivedTimestampFrom(ctx); ok {
		dst = appendIntHeader(dst, stagev1.HeaderReceived, received.UnixMicro())
	}
	if trackers, ok := request.LatencyTrackersFrom(ctx); ok {
		// kube-apiserver's service level indicator is without the time in queues.
		if waited := trackers.APFQueueWaitTracker.GetLatency(); waited > 0 {
			dst = append(dst, stagev1.HeaderLatency+": apf-queue-wait="...)
			dst = append(strconv.AppendInt(dst, waited.Nanoseconds(), 10), "\r\n"...)
		}
	}
	return c.appendAudit(dst, r)
}

func (c *Propagator) appendAudit(dst []byte, r *http.Request) []byte {
	ac := audit.AuditContextFrom(r.Context())
	if ac == nil {
		return dst
	}
	// An ID that the client has sent is in the request already.
	if id := ac.AuditID(); id != "" && r.Header.Get(auditinternal.HeaderAuditID) == "" && isHeaderValue(string(id)) {
		dst = append(append(append(dst, auditinternal.HeaderAuditID+": "...), id...), "\r\n"+stagev1.HeaderAdded+": "+auditIDKey+"\r\n"...)
	}
	level := ac.GetEventLevel()
	if level == "" || level == auditinternal.LevelNone {
		return dst
	}
	dst = append(append(dst, stagev1.HeaderAuditLevel+": "...), level...)
	if c.omits != nil && level != auditinternal.LevelMetadata && c.omits(r.Context(), ac) {
		dst = append(dst, ";omitManagedFields"...)
	}
	return append(dst, "\r\n"...)
}

// auditIDKey is auditinternal.HeaderAuditID in canonical form.
const auditIDKey = "Audit-Id"

// HostHeader reports whether the host sets the header: the trace context, and the audit id,
// which is that of the host's own event even if the client has chosen it.
func (c *Propagator) HostHeader(key string) bool {
	return key == auditIDKey || key == "Traceparent" || key == "Tracestate"
}

// HostResponseHeader reports whether only the host sets the header: what its filters identify the request by, and who may read
// the response in a browser.
func (c *Propagator) HostResponseHeader(key string) bool {
	return key == auditIDKey || strings.HasPrefix(key, "X-Kubernetes-Pf-") || strings.HasPrefix(key, "Access-Control-")
}

// ResponseHeader handles a header that a stage has sent to the host. Of a stage that does not serve the request, no more counts than
// the time that it has had it, and annotations in its own name.
func (c *Propagator) ResponseHeader(r *http.Request, from relay.Sender, key, value string) {
	switch key {
	case stagev1.HeaderAudit:
		addAudit(r.Context(), from, value)
	case stagev1.HeaderLatency:
		addLatency(r.Context(), from, value)
	case stagev1.HeaderInitializing:
		if from.Serves {
			watchInitializing(r.Context())
		}
	}
}

func appendIntHeader(dst []byte, key string, value int64) []byte {
	dst = append(append(dst, key...), ": "...)
	return append(strconv.AppendInt(dst, value, 10), "\r\n"...)
}

func isHeaderValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// originalAttributes returns the attributes of the request before impersonation, for which
// the audit policy was evaluated.
func originalAttributes(ctx context.Context, ac *audit.AuditContext) (auditAttributes, error) {
	attributes, err := genericapifilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return auditAttributes{}, err
	}
	return auditAttributes{attributes, eventUser(ac.GetEventUser())}, nil
}
