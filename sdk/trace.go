package sdk

import (
	"context"
	"encoding/hex"
	"net/http"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The headers of W3C Trace Context.
const (
	headerTraceParent = "Traceparent"
	headerTraceState  = "Tracestate"
)

// Tracer makes spans. Those that begin with the context of a request are children of
// the host's span, and requests to the host and to stages downstream join the trace. They
// are exported by the provider of Stage.Tracing; without one, they are not exported.
func (e *Env) Tracer() trace.Tracer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tracers.Tracer("github.com/catena-dev/catena/sdk")
}

// startTracing sets the provider of the tracers to the stage's own.
func (e *Env) startTracing(provide func(*Env) (trace.TracerProvider, error)) error {
	if provide == nil {
		return nil
	}
	provider, err := provide(e)
	if err != nil || provider == nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tracers = provider
	return nil
}

func noTracers() trace.TracerProvider { return noop.NewTracerProvider() }

// withTrace returns a context with the span that the headers of a request name.
func withTrace(ctx context.Context, h http.Header) context.Context {
	parent, ok := h[headerTraceParent]
	if !ok || len(parent) != 1 {
		return ctx
	}
	span, ok := parseTraceParent(parent[0])
	if !ok {
		return ctx
	}
	if state, err := trace.ParseTraceState(h.Get(headerTraceState)); err == nil {
		span = span.WithTraceState(state)
	}
	return trace.ContextWithRemoteSpanContext(ctx, span)
}

// parseTraceParent parses VERSION-TRACE-SPAN-FLAGS, in hexadecimal digits.
func parseTraceParent(s string) (trace.SpanContext, bool) {
	const length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || len(s) > length &&
		(s[:2] == "00" || s[length] != '-') {
		return trace.SpanContext{}, false
	}
	traceID, err := trace.TraceIDFromHex(s[3:35])
	if err != nil {
		return trace.SpanContext{}, false
	}
	spanID, err := trace.SpanIDFromHex(s[36:52])
	if err != nil {
		return trace.SpanContext{}, false
	}
	flags, err := hex.DecodeString(s[53:55])
	if err != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	}), true
}

// putTrace writes the span of ctx, if there is one, to the headers of a request.
func putTrace(ctx context.Context, h http.Header) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() || span.IsRemote() && h.Get(headerTraceParent) != "" {
		return
	}
	h.Set(headerTraceParent, "00-"+span.TraceID().String()+"-"+span.SpanID().String()+"-"+(span.TraceFlags()&trace.FlagsSampled).String())
	if state := span.TraceState().String(); state != "" {
		h.Set(headerTraceState, state)
	}
}
