package sdk_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	hostOf  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A request is part of the host's span, and what the stage asks is part of its own.
func TestTrace(t *testing.T) {
	t.Parallel()
	seen := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Traceparent")+" "+r.Header.Get("Tracestate"))
	}
	stage := stagetest.Start(t, sdk.Stage{Name: "traced", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, span := env.Tracer().Start(r.Context(), "work")
			defer span.End()
			switch r.URL.Path {
			case "/span":
				parent := trace.SpanContextFromContext(r.Context())
				_, _ = io.WriteString(w, parent.TraceID().String()+" "+parent.SpanID().String()+" "+parent.TraceState().String())
			case "/own":
				own := span.SpanContext().WithSpanID(trace.SpanID{1}).WithRemote(false)
				env.Call.ServeHTTP(w, r.WithContext(trace.ContextWithSpanContext(ctx, own)))
			case "/api":
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://catena/", nil)
				if resp, err := env.Client().Do(req); err == nil {
					defer resp.Body.Close()
					_, _ = io.Copy(w, resp.Body)
				}
			default:
				env.Next.ServeHTTP(w, r.WithContext(ctx))
			}
		}), nil
	}}, stagetest.Options{Next: http.HandlerFunc(seen), API: http.HandlerFunc(seen)})
	for _, tc := range []struct{ path, parent, want string }{
		{"/span", hostOf, traceID + " 00f067aa0ba902b7 a=1"},
		{"/span", "", strings.Repeat("0", 32) + " " + strings.Repeat("0", 16) + " "},
		{"/span", "nonsense", strings.Repeat("0", 32) + " " + strings.Repeat("0", 16) + " "},
		{"/own", hostOf, "00-" + traceID + "-0100000000000000-01 a=1"},
		{"/api", hostOf, hostOf + " a=1"},
		{"/api", "", " "},
		{"/decline", hostOf, hostOf + " a=1"},
	} {
		header := http.Header{}
		if tc.parent != "" {
			header = http.Header{"Traceparent": {tc.parent}, "Tracestate": {"a=1"}}
		}
		got := stage.Do(t, stagetest.Call{Path: tc.path, Header: header})
		if got.Body != tc.want {
			t.Errorf("%s in %q: %q, want %q", tc.path, tc.parent, got.Body, tc.want)
		}
		if got.Declined != (tc.path == "/decline") {
			t.Errorf("%s: declined %t", tc.path, got.Declined)
		}
	}
}
