package apiserver

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// newAdapter returns the adapter of a stage that is configured and no more.
func newAdapter(tb testing.TB) (a *Adapter) {
	tb.Helper()
	listener, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	if err != nil {
		tb.Fatal(err)
	}
	stage := sdk.Stage{Name: "bench", New: func(env *sdk.Env) (_ http.Handler, err error) {
		a, err = New(env)
		return nil, err
	}}
	service, err := sdk.NewService(stage, listener, hclog.NewNullLogger())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	request := &stagev1.ConfigureRequest{Host: &stagev1.Host{ExternalUrl: "https://localhost:6443"}}
	if _, err := service.Configure(tb.Context(), request); err != nil {
		tb.Fatal(err)
	}
	return a
}

// BenchmarkChain is what the stage's side of the carriers costs a request.
func BenchmarkChain(b *testing.B) {
	a := newAdapter(b)
	close(a.complete)
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(config)
	end := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") })
	for _, c := range []struct {
		name    string
		handler http.Handler
		headers http.Header
	}{
		{"none", end, http.Header{}},
		{"plain", a.buildHandlerChain(end, config), http.Header{}},
		{"audited", a.buildHandlerChain(end, config), http.Header{stagev1.HeaderAuditLevel: {"Metadata"}, "Audit-Id": {"x"}}},
		{"traced", a.buildHandlerChain(end, config), http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods/x", nil)
				r.Header = c.headers.Clone()
				c.handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
