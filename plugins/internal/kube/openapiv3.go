package kube

import (
	"context"
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// makeOpenAPIv3 has the server make its OpenAPI v3 documents, which it otherwise does at the first request for
// their hashes. The aggregator makes that as soon as a process takes another's place: a quarter of a second of
// work would then be in the way of the requests of clients.
func makeOpenAPIv3(ctx context.Context, server *genericapiserver.GenericAPIServer) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, openAPIIndex, nil)
	if err != nil {
		panic(err) // the arguments are constants
	}
	server.Handler.NonGoRestfulMux.ServeHTTP(discarded{}, r)
}

// discarded is the writer of a response that nobody reads.
type discarded http.Header

// Header implements http.ResponseWriter.
func (d discarded) Header() http.Header { return http.Header(d) }

// Write implements http.ResponseWriter.
func (discarded) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (discarded) WriteHeader(int) {}
