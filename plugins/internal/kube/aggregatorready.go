package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/catena-dev/catena/plugins/internal/delegates"
)

const (
	openAPIIndex = "/openapi/v3"
	// openAPITimeout is how long a stage without a valid index holds up the start.
	openAPITimeout = 30 * time.Second
	openAPIPoll    = 50 * time.Millisecond
)

// awaitOpenAPI returns when the index of OpenAPI documents has those of all stages
// downstream. In Kubernetes' single process it is complete from the beginning.
func (a *aggregator) awaitOpenAPI(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	defer cancel()
	for _, d := range a.discoveries {
		log := a.env.Log.With("delegate", d.Delegate.Name)
		for {
			has, err := a.hasOpenAPI(ctx, d)
			if err != nil { // it will not become better by waiting
				log.Warn("OpenAPI documents of a stage are malformed", "error", err)
			}
			if has || err != nil {
				break
			}
			select {
			case <-ctx.Done():
				log.Warn("OpenAPI documents of a stage are missing")
				return
			case <-time.After(openAPIPoll):
			}
		}
	}
}

// hasOpenAPI reports whether the index has all that a stage downstream has. An error
// reports that the index of that stage cannot be read.
func (a *aggregator) hasOpenAPI(ctx context.Context, d *delegates.Discovery) (bool, error) {
	theirs, status, err := readOpenAPIIndex(ctx, d.Delegate.Handler)
	if err != nil {
		return false, err
	}
	if status == http.StatusNotFound {
		return true, nil // an API server need not have one
	}
	if status != http.StatusOK {
		return false, nil
	}
	ours, _, err := readOpenAPIIndex(ctx, a.server.GenericAPIServer.Handler.NonGoRestfulMux)
	if err != nil {
		return false, nil // it is this server's own, and not made yet
	}
	for path := range theirs {
		if _, ok := ours[path]; !ok {
			return false, nil
		}
	}
	return true, nil
}

// readOpenAPIIndex returns the paths of the OpenAPI documents that handler has.
func readOpenAPIIndex(ctx context.Context, handler http.Handler) (paths map[string]handler3.OpenAPIV3DiscoveryGroupVersion, status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, openAPIIndex, nil)
	if err != nil {
		return nil, 0, err
	}
	w := responsewriter.NewInMemoryResponseWriter()
	handler.ServeHTTP(w, r)
	var index handler3.OpenAPIV3Discovery
	if w.RespCode() == http.StatusOK {
		err = json.Unmarshal(w.Data(), &index)
	}
	if err != nil {
		return nil, w.RespCode(), fmt.Errorf("%s: %w", openAPIIndex, err)
	}
	return index.Paths, w.RespCode(), nil
}
