package kube

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/catena-dev/catena/sdk"
)

// The start waits for the documents of a stage, and for those of an optional one not for ever.
func TestOptionalStagesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		responds := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
		discovery := func(optional bool, h http.Handler) *delegates.Discovery {
			d := delegates.NewDiscovery(sdk.Delegate{Optional: optional, Handler: h}, aggregated.NewResourceManager("apis"), nil)
			d.Sync(t.Context())
			return d
		}
		there, optional, required := discovery(true, responds), discovery(true, http.NotFoundHandler()), discovery(false, http.NotFoundHandler())
		for name, tc := range map[string]struct {
			all  []*delegates.Discovery
			took time.Duration
			want bool
		}{
			"all there":            {[]*delegates.Discovery{there}, 0, true},
			"optional ones lack":   {[]*delegates.Discovery{optional, there, optional}, optionalTimeout, true},
			"a required one lacks": {[]*delegates.Discovery{optional, required}, time.Minute, false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			if got := waitAll(ctx, tc.all); got != tc.want || time.Since(began) != tc.took {
				t.Errorf("%s: %t after %s", name, got, time.Since(began))
			}
			cancel()
		}
	})
}

// The aggregator is ready when its index of OpenAPI documents has what the stages
// downstream have, and not before: a client that asks at once would miss kinds.
func TestOpenAPIOfDelegate(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	const apps = `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=1"}}}`
	for name, tc := range map[string]struct {
		ours, theirs http.Handler
		want         bool
		problem      string
	}{
		"has it":              {answer(200, apps), answer(200, apps), true, ""},
		"lacks it":            {answer(200, `{"paths":{}}`), answer(200, apps), false, ""},
		"has no index yet":    {answer(503, ""), answer(200, apps), false, ""},
		"delegate is empty":   {answer(200, `{"paths":{}}`), answer(200, `{"paths":{}}`), true, ""},
		"delegate has none":   {answer(200, `{"paths":{}}`), answer(404, "not found"), true, ""},
		"delegate is down":    {answer(200, apps), answer(503, ""), false, ""},
		"delegate is garbled": {answer(200, apps), answer(200, `{"paths":`), false, "/openapi/v3: unexpected end of JSON input"},
		"itself is garbled":   {answer(200, `{"paths":`), answer(200, apps), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := mux.NewPathRecorderMux("aggregator")
			own.Handle(openAPIIndex, tc.ours)
			a := &aggregator{server: &aggregatorapiserver.APIAggregator{GenericAPIServer: &genericapiserver.GenericAPIServer{
				Handler: &genericapiserver.APIServerHandler{NonGoRestfulMux: own},
			}}}
			d := &delegates.Discovery{Delegate: sdk.Delegate{Name: "core", Handler: tc.theirs}}
			got, err := a.hasOpenAPI(t.Context(), d)
			if got != tc.want {
				t.Errorf("complete is %v, want %v", got, tc.want)
			}
			if (err != nil) != (tc.problem != "") || err != nil && err.Error() != tc.problem {
				t.Errorf("got %v, want %q", err, tc.problem)
			}
		})
	}
}
