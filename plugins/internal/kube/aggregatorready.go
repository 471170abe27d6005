package kube

import (
	"context"
	"net/http"
	"time"

	"github.com/catena-dev/catena/plugins/internal/delegates"
)

const (
	openAPIIndex = "/openapi/v3"
	// openAPITimeout is how long a stage without a valid index holds up the start.
	openAPITimeout = 30 * time.Second
	openAPIPoll    = 50 * time.Millisecond
)

// awaitOpenAPI returns when the index of OpenAPI documents has those of all stages
// downstream but the optional ones. In Kubernetes' single process it is complete from the beginning.
func (a *aggregator) awaitOpenAPI(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	defer cancel()
	for _, d := range a.discoveries {
		if d.Delegate.Optional {
			continue
		}
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

// awaitAPIServices returns when discovery has the API services of other servers. It does when Kubernetes' hook for them has returned.
func (a *aggregator) awaitAPIServices(ctx context.Context) {
	for _, check := range a.server.GenericAPIServer.HealthzChecks() {
		if check.Name() != "poststarthook/apiservice-discovery-controller" {
			continue
		}
		for check.Check(nil) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(openAPIPoll):
			}
		}
	}
}

// hasOpenAPI reports whether the index has all that a stage downstream has. An error
// reports that the index of that stage cannot be read.
func (a *aggregator) hasOpenAPI(ctx context.Context, d *delegates.Discovery) (bool, error) {
	theirs, status, err := delegates.IndexOf(ctx, d.Delegate.Handler)
	if err != nil {
		return false, err
	}
	if status == http.StatusNotFound {
		return true, nil // an API server need not have one
	}
	if status != http.StatusOK {
		return false, nil
	}
	ours, _, err := delegates.IndexOf(ctx, a.server.GenericAPIServer.Handler.NonGoRestfulMux)
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
