package h1

import (
	"context"
	"net/http"
)

type trailersKey struct{}

// WithTrailers returns the request with its trailers in its context, in place of those of another request. It is for
// the request as the server has made it: when the body has been read, the server puts their values there, and not into
// copies that filters may have made.
func WithTrailers(r *http.Request) *http.Request {
	if len(r.Trailer) == 0 && r.Context().Value(trailersKey{}) == nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), trailersKey{}, r.Trailer))
}

// Trailers returns the trailers of a request, with their values once its body has been read to the end.
func Trailers(r *http.Request) http.Header {
	if trailers, ok := r.Context().Value(trailersKey{}).(http.Header); ok {
		return trailers
	}
	return r.Trailer
}
