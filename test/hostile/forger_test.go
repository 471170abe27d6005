package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/sdk"
)

// How a forger responds to requests for its documents.
const (
	lying   = "lying"   // with its own group, and with those of others
	plain   = "plain"   // with its own group
	missing = "missing" // not found
	silent  = "silent"  // not at all
	endless = "endless" // with a text that does not end
	heavy   = "heavy"   // with one that takes much memory
	absent  = "absent"  // it does not come up
)

// forgerConfig is the configuration of a forger.
type forgerConfig struct {
	// Mode is how it responds at first.
	Mode string `json:"mode"`
}

// forger is a stage without grants that says of the server what it can.
type forger struct {
	name string
	mode atomic.Value
}

// many is how many groups a forger lists and claims.
const many = 3000

func newForger(env *sdk.Env) (http.Handler, error) {
	var config forgerConfig
	if err := env.Config(&config); err != nil {
		return nil, err
	}
	f := &forger{name: env.Name}
	f.mode.Store(config.Mode)
	if config.Mode == absent {
		return nil, errors.New("it never comes up")
	}
	env.ClaimPrefix("/"+env.Name, "/apis/"+f.group(), "/api", "/apis/apps", "/openapi")
	listed := []string{
		"/", "/api", "/api/v1", "/apis", "/apis/" + f.group(), "/apis/" + f.group() + "/v1", "/openapi/v2", "/openapi/v3",
		"/apis/apps/v1", "/apis/batch/v1", "/apis/rbac.authorization.k8s.io/v1", "/apis/other.example.com/v1", "/livez/ping", "/version",
	}
	for i := range many {
		group := fmt.Sprintf("/apis/g%d.%s", i, f.group())
		env.ClaimPrefix(group)
		listed = append(listed, group+"/v1")
	}
	env.ListPaths(listed...)
	env.MuxComplete("never", make(chan struct{}))
	for _, name := range []string{"ping", "etcd", "poststarthook/rbac/bootstrap-roles", "poststarthook/start-service-ip-repair-controllers"} {
		env.HealthCheck(name, sdk.HealthKinds{Livez: true, Readyz: true, Healthz: true, ServerCheck: "etcd"}, func(context.Context) error { return errors.New("forged") })
	}
	// One of liveness would end the process.
	env.HealthCheck("informer-sync", sdk.HealthKinds{Readyz: true, ServerCheck: "ping"}, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	// Of core, this is a gauge.
	return f, env.Metrics().Register(prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_storage_size_bytes", Help: "Forged."}))
}

// group is that of its own.
func (f *forger) group() string { return f.name + ".example.com" }

// ServeHTTP implements http.Handler.
func (f *forger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if mode, ok := strings.CutPrefix(r.URL.Path, "/"+f.name+"/"); ok {
		f.mode.Store(mode)
		return
	}
	switch mode := f.mode.Load(); mode {
	case silent:
		<-r.Context().Done()
	case endless, heavy:
		f.flood(w, r, mode == heavy)
	case plain, lying:
		text := f.document(r.URL.Path, mode == lying)
		if text == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	default:
		http.NotFound(w, r)
	}
}

// flood responds without an end, or with many small values, which end.
func (f *forger) flood(w http.ResponseWriter, r *http.Request, ends bool) {
	w.Header().Set("Content-Type", "application/json")
	begin, end := `{"kind":"APIGroupDiscoveryList","items":[{}`, "]}"
	if strings.HasPrefix(r.URL.Path, "/openapi/") {
		begin, end = `{"swagger":"2.0","info":{"title":"x","version":"x"},"paths":{},"tags":[{}`, "]}"
	}
	_, _ = io.WriteString(w, begin)
	block := strings.Repeat(",{}", 1<<15)
	for i := 0; !ends || i < 200; i++ {
		if _, err := io.WriteString(w, block); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, end)
}

// document returns a document of the groups that the forger says to have; none if it is unknown.
func (f *forger) document(path string, lies bool) string {
	groups := []string{f.group()}
	if lies {
		groups = append(groups, "apps", "batch", "rbac.authorization.k8s.io", "other.example.com")
	}
	var items, index, paths, kinds []string
	for _, g := range groups {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[{"resource":"forged","responseKind":{"kind":"Forged"},"scope":"Namespaced","singularResource":"forged","verbs":["get"]}]}]}`, g))
		index = append(index, fmt.Sprintf(`"apis/%s/v1":{"serverRelativeURL":"/openapi/v3/apis/%[1]s/v1?hash=forged"}`, g))
		paths = append(paths, fmt.Sprintf(`"/apis/%s/v1/forged":{"get":{"operationId":"forged%[1]s","responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/io.k8s.api.apps.v1.Deployment"}}}}}`, g))
		kinds = append(kinds, fmt.Sprintf(`{"group":%q,"kind":"Deployment","version":"v1"}`, g))
	}
	if lies {
		index = append(index, `"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=forged"}`, `"version":{"serverRelativeURL":"/openapi/v3/version?hash=forged"}`)
	}
	switch path {
	case "/apis":
		return `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` + strings.Join(items, ",") + `]}`
	case "/openapi/v3":
		return `{"paths":{` + strings.Join(index, ",") + `}}`
	case "/openapi/v2":
		return `{"swagger":"2.0","info":{"title":"forged","version":"forged"},"paths":{` + strings.Join(paths, ",") + `},"definitions":{"io.k8s.api.apps.v1.Deployment":{"description":"forged","type":"object",` +
			`"x-kubernetes-group-version-kind":[` + strings.Join(kinds, ",") + `]}}}`
	}
	if strings.HasPrefix(path, "/openapi/v3/") {
		return `{"openapi":"3.0.0","info":{"title":"forged","version":"forged"},"paths":{}}`
	}
	return ""
}

// The stages that say of the server what they can, upstream and downstream of core.
const (
	forgerUp   = "forger-up"
	forgerDown = "forger-down"
)

var forgers = []string{forgerUp, forgerDown}

// forgerSet are the settings of a chain with forgers, which respond in some mode at first.
func forgerSet(up, down string) []string {
	stage := func(mode string) string {
		return fmt.Sprintf(`"required":false,"lock":"off","config":{"mode":%q}}`, mode)
	}
	return []string{
		"stages.aggregator.delegate=" + forgerUp, "stages." + forgerUp + `={"delegate":"core",` + stage(up),
		"stages.extensions.delegate=" + forgerDown, "stages." + forgerDown + "={" + stage(down),
	}
}
