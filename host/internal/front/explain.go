package front

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/internal/requestinfo"
)

const (
	// headerExplain asks for the trail of a request, which headerTrail has.
	headerExplain = "X-Catena-Explain"
	headerTrail   = "X-Catena-Trail"
)

// Access is whether a user may make a request.
type Access struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
	// Request describes what the authorizers see.
	Request string `json:"request"`
	Allowed bool   `json:"allowed"`
	// Reason is the authorizer's, empty if it gives none.
	Reason string `json:"reason,omitempty"`
}

// Authorize asks the authorizers whether a user may make a request, without making it. The
// path may have a query. The user is also in the groups that impersonation would add.
func (f *Frontend) Authorize(ctx context.Context, method, path, name string, groups []string) (Access, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, nil)
	if err != nil {
		return Access{}, err
	}
	info, err := requestinfo.Factory().NewRequestInfo(r)
	if err != nil {
		return Access{}, err
	}
	u := &user.DefaultInfo{Name: name, Groups: withImplied(name, groups)}
	attributes, err := genericapifilters.GetAuthorizerAttributes(request.WithUser(request.WithRequestInfo(ctx, info), u))
	if err != nil {
		return Access{}, err
	}
	decision, reason, err := f.server.Authorizer.Authorize(ctx, attributes)
	if err != nil && decision != authorizer.DecisionAllow {
		reason = strings.TrimPrefix(reason+": "+err.Error(), ": ")
	}
	return Access{
		User: name, Groups: u.Groups, Request: describe(info), Allowed: decision == authorizer.DecisionAllow, Reason: reason,
	}, nil
}

// withImplied adds the groups that a user of that name is always in.
func withImplied(name string, groups []string) []string {
	all := slices.Clone(groups)
	add := func(names ...string) {
		for _, g := range names {
			if !slices.Contains(all, g) {
				all = append(all, g)
			}
		}
	}
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		add(serviceaccount.MakeGroupNames(namespace)...)
	}
	if name == user.Anonymous {
		add(user.AllUnauthenticated)
	} else {
		add(user.AllAuthenticated)
	}
	return all
}

// describe returns a request as RBAC rules name it: verb and resource, or verb and path.
func describe(info *request.RequestInfo) string {
	if !info.IsResourceRequest {
		return info.Verb + " " + info.Path
	}
	text := info.Verb + " " + info.Resource
	if info.APIGroup != "" {
		text += "." + info.APIGroup
	}
	if info.Subresource != "" {
		text += "/" + info.Subresource
	}
	if info.Name != "" {
		text += fmt.Sprintf(" %q", info.Name)
	}
	if info.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", info.Namespace)
	}
	return text
}

// trailed makes the request keep its trail if the user asks for that and may, or if it
// is traced: the response gets the trail as a header, the trace a span for each stage.
func (f *Frontend) trailed(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	asks := r.Header.Get(headerExplain) != "" && f.isOperator(r.Context())
	span := trace.SpanFromContext(r.Context())
	if !asks && !span.IsRecording() {
		return w, r
	}
	trail := &relay.HopLog{}
	if span.IsRecording() {
		ctx, tracer := r.Context(), span.TracerProvider().Tracer("catena")
		trail.Ended = func(h relay.LoggedHop) {
			_, s := tracer.Start(ctx, "stage "+h.Stage, trace.WithTimestamp(h.Began),
				trace.WithAttributes(attribute.String("catena.stage", h.Stage), attribute.String("catena.outcome", string(h.Outcome))))
			s.End(trace.WithTimestamp(h.Began.Add(h.Took)))
		}
	}
	if asks {
		w = responsewriter.WrapForHTTP1Or2(&trailWriter{ResponseWriter: w, trail: trail})
	}
	return w, r.WithContext(relay.WithHopLog(r.Context(), trail))
}

// trailWriter adds the trail to the head of a response.
type trailWriter struct {
	http.ResponseWriter
	trail   *relay.HopLog
	started bool
}

func (w *trailWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *trailWriter) start() {
	if !w.started {
		w.started = true
		w.Header().Set(headerTrail, w.trail.String())
	}
}

func (w *trailWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.start()
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *trailWriter) Write(p []byte) (int, error) {
	w.start()
	return w.ResponseWriter.Write(p)
}

func (w *trailWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.start()
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
