package front

import (
	"context"
	"net/http"
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
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Carrier carries what rides on a request's context in one process to a stage and
// back, in headers. It implements relay.Propagator.
type Propagator struct {
	// omits tells whether the audit policy leaves managed fields out for a
	// request; nil if it never does.
	omits func(ctx context.Context, ac *audit.AuditContext) bool
}

var _ relay.Propagator = (*Propagator)(nil)

// newPropagator makes a carrier for a server with that audit policy, nil if it has none.
func newPropagator(policy *auditPolicy) *Propagator {
	if policy == nil {
		return &Propagator{}
	}
	return &Propagator{omits: policy.omitsManagedFields}
}

// prepare makes the headers of a request fit for the chain: upstream's filters
// have taken out those that say who the client is, this takes out those with which
// host and stages talk, and adds the trace.
func (c *Propagator) prepare(r *http.Request) {
	for name := range r.Header {
		if strings.HasPrefix(name, stagev1.HeaderPrefix) {
			delete(r.Header, name)
		}
	}
	// The client's own trace context, if it sent one, is replaced by the span of
	// this server, whose child the stage's is.
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
	if deadline, ok := ctx.Deadline(); ok {
		// Rounded up: the host's timeout is first, whatever the stage does at its own. At
		// least 1, since a stage takes no header for no deadline.
		left := max((time.Until(deadline) + time.Millisecond - 1).Milliseconds(), 1)
		dst = appendIntHeader(dst, stagev1.HeaderTimeout, left)
	}
	if received, ok := request.ReceivedTimestampFrom(ctx); ok {
		dst = appendIntHeader(dst, stagev1.HeaderReceived, received.UnixMicro())
	}
	return c.appendAudit(dst, r)
}

func (c *Propagator) appendAudit(dst []byte, r *http.Request) []byte {
	ac := audit.AuditContextFrom(r.Context())
	if ac == nil {
		return dst
	}
	// If the client has sent an id, the request has it already.
	if id := ac.AuditID(); id != "" && r.Header.Get(auditinternal.HeaderAuditID) == "" && isHeaderValue(string(id)) {
		dst = append(append(append(dst, auditinternal.HeaderAuditID+": "...), id...), "\r\n"...)
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

// ResponseHeader takes a header that a stage has sent to the host.
func (c *Propagator) ResponseHeader(r *http.Request, _, key, value string) {
	switch key {
	case stagev1.HeaderAudit:
		addAudit(r.Context(), value)
	case stagev1.HeaderLatency:
		addLatency(r.Context(), value)
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

// attributes are those of the request before impersonation, by which the audit
// policy was evaluated.
func originalAttributes(ctx context.Context, ac *audit.AuditContext) (auditAttributes, error) {
	attributes, err := genericapifilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return auditAttributes{}, err
	}
	return auditAttributes{attributes, eventUser(ac.GetEventUser())}, nil
}
