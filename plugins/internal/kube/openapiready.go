package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/catena-dev/catena/plugins/internal/delegates"
)

const (
	openAPIIndex = "/openapi/v3"
	// openAPITimeout is how long a stage without a sound index holds up the start.
	openAPITimeout = 30 * time.Second
	openAPIPoll    = 50 * time.Millisecond
)

// awaitOpenAPI returns when the index of OpenAPI documents has those of all stages
// behind this one. In upstream's single process it is complete from the beginning.
func (a *aggregator) awaitOpenAPI(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	defer cancel()
	for _, d := range a.discoveries {
		for !a.hasOpenAPI(ctx, d) {
			select {
			case <-ctx.Done():
				a.env.Log.Warn("OpenAPI documents of a stage are missing", "delegate", d.Delegate.Name)
				return
			case <-time.After(openAPIPoll):
			}
		}
	}
}

// hasOpenAPI tells whether the index has all that a stage behind this one has.
func (a *aggregator) hasOpenAPI(ctx context.Context, d *delegates.Discovery) bool {
	theirs, status := readOpenAPIIndex(ctx, d.Delegate.Handler)
	if status == http.StatusNotFound {
		return true // an API server need not have one
	}
	if status != http.StatusOK {
		return false
	}
	ours, _ := readOpenAPIIndex(ctx, a.server.GenericAPIServer.Handler.NonGoRestfulMux)
	for path := range theirs {
		if _, ok := ours[path]; !ok {
			return false
		}
	}
	return true
}

// readOpenAPIIndex returns the paths of the OpenAPI documents that handler has.
func readOpenAPIIndex(ctx context.Context, handler http.Handler) (paths map[string]handler3.OpenAPIV3DiscoveryGroupVersion, status int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, openAPIIndex, nil)
	if err != nil {
		return nil, http.StatusInternalServerError
	}
	w := responsewriter.NewInMemoryResponseWriter()
	handler.ServeHTTP(w, r)
	var index handler3.OpenAPIV3Discovery
	if w.RespCode() == http.StatusOK && json.Unmarshal(w.Data(), &index) != nil {
		return nil, http.StatusInternalServerError
	}
	return index.Paths, w.RespCode()
}
