package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	openapiaggregator "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// withDownstream returns a handler of a stage that has server: next, but for discovery and OpenAPI of the whole chain.
// In a chain without the aggregator, the first stage with an API gets clients' requests for these documents, and has
// to merge them with those of the API stages downstream. The aggregator asks each stage for its own, by requests that are for
// that stage alone: these are next's. So nothing is merged, and no stage downstream asked, where the aggregator does it.
// Alone, extensions needs it too: Kubernetes' server leaves groups of custom resources at /apis to the aggregator.
func (b *base) withDownstream(next http.Handler, server *genericapiserver.GenericAPIServer, v2 *common.Config) http.Handler {
	var downstream []sdk.Delegate
	for _, d := range b.delegates() {
		if delegates.ServesAPI(d) {
			downstream = append(downstream, d)
		}
	}
	merged := sync.OnceValues(func() (http.Handler, error) {
		own := sdk.Delegate{Name: b.env.Name, ListedPaths: apiserver.OwnPaths(server),
			Claims: apiserver.ClaimsOf(server), Handler: server.UnprotectedHandler()}
		return b.newMerged(append([]sdk.Delegate{own}, downstream...), v2)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isMerged(r) {
			next.ServeHTTP(w, r)
			return
		}
		handler, err := merged()
		if err != nil {
			sdk.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// delegates returns the stages downstream as their documents count.
func (b *base) delegates() []sdk.Delegate {
	all := b.env.Delegates()
	for i := range all {
		all[i] = delegates.Bounded(all[i], b.env.Log)
	}
	return all
}

// isMerged reports whether a request is a client's for a document that all stages have a part in.
func isMerged(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get(stagev1.HeaderDelegate) != "" {
		return false
	}
	path := r.URL.Path
	return path == "/apis" || path == "/apis/" || path == openAPIv2 || path == openAPIIndex || strings.HasPrefix(path, openAPIIndex+"/")
}

// newMerged returns a handler for the documents of several stages. They are asked when it is asked, and never by itself.
func (b *base) newMerged(stages []sdk.Delegate, v2 *common.Config) (http.Handler, error) {
	v2Handler, err := b.mergedOpenAPIv2(stages, v2)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI of the stages downstream: %w", err)
	}
	handler := http.NewServeMux()
	apis := b.mergedDiscovery(stages)
	handler.Handle("/apis", apis)
	handler.Handle("/apis/{$}", apis)
	handler.Handle(openAPIv2, v2Handler)
	v3 := delegates.NewOpenAPIv3(stages)
	handler.Handle(openAPIIndex, v3)
	handler.Handle(openAPIIndex+"/", v3)
	return handler, nil
}

// mergedOpenAPIv2 returns Kubernetes' handler for the merged document, which keeps what has not changed.
func (b *base) mergedOpenAPIv2(stages []sdk.Delegate, config *common.Config) (http.Handler, error) {
	validated := make([]sdk.Delegate, len(stages))
	for i, stage := range stages {
		validated[i] = stage
		validated[i].Handler = &validateOpenAPI{next: stage.Handler, log: b.env.Log.With("delegate", stage.Name), optional: stage.Optional}
	}
	chain, err := delegates.Chain(validated, b.generic.EffectiveVersion, http.NotFoundHandler())
	if err != nil {
		return nil, err
	}
	handler := mux.NewPathRecorderMux("openapi-of-the-chain")
	downloader := openapiaggregator.NewDownloader()
	if _, err := openapiaggregator.BuildAndRegisterAggregator(&downloader, chain, nil, config, handler); err != nil {
		return nil, err
	}
	return handler, nil
}

// mergedDiscovery returns a handler for both kinds of discovery at /apis.
func (b *base) mergedDiscovery(stages []sdk.Delegate) http.Handler {
	m := &mergedDiscovery{manager: aggregated.NewResourceManager("apis")}
	priorities := priorities(stages)
	for i, stage := range stages {
		d := delegates.NewDiscovery(stage, m.manager, builtin(stage, priorities))
		d.Place = i
		d.Log = func(err error) { logDiscovery(b.env, d, err) }
		m.discoveries = append(m.discoveries, d)
	}
	list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		groups, err := delegates.Groups(r.Context(), m.manager)
		if err != nil {
			sdk.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		responsewriters.WriteObjectNegotiated(b.generic.Serializer, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r,
			http.StatusOK, &metav1.APIGroupList{Groups: groups}, false)
	})
	handler := aggregated.WrapAggregatedDiscoveryToHandler(list, m.manager, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.sync(b.env.Context())
		handler.ServeHTTP(w, r)
	})
}

// mergedDiscovery keeps discovery of several stages in one manager.
type mergedDiscovery struct {
	manager     aggregated.ResourceManager
	discoveries []*delegates.Discovery

	mu    sync.Mutex
	began time.Time // of the last sync
}

// sync brings the manager up to date with all stages at once. Of those who wait for another's, one more is enough for all.
func (m *mergedDiscovery) sync(ctx context.Context) {
	called := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.After(called) {
		return
	}
	m.began = time.Now()
	var all sync.WaitGroup
	for _, d := range m.discoveries {
		all.Go(func() {
			d.Sync(ctx)
			d.Assume()
		})
	}
	all.Wait()
}
