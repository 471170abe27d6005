package kube

import (
	"io"
	"net/http"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/catena-dev/catena/sdk"
)

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
