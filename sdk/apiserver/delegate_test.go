package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// decliningServer is the handler of a server that has nothing at all.
func decliningServer(t *testing.T) (*Adapter, http.Handler) {
	t.Helper()
	a := newAdapter(t)
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(config)
	a.serializer = config.Serializer
	return a, a.buildHandlerChain(http.HandlerFunc(a.Decline), config)
}

// A request for a path that the server may not have installed yet does not wait for
// ever, and never gets "not found".
func TestPathsThatDoNotCome(t *testing.T) {
	t.Parallel()
	a, handler := decliningServer(t)
	a.completeTimeout = time.Millisecond
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/late/v1", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || w.Header().Get(stagev1.HeaderDecline) != "" {
		t.Errorf("response is %d with %v, want 503 with Retry-After", w.Code, w.Header())
	}
}

// A request that has had to wait is handled once more, from the beginning.
func TestPathsThatCome(t *testing.T) {
	t.Parallel()
	a, handler := decliningServer(t)
	time.AfterFunc(10*time.Millisecond, func() { close(a.complete) })
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/late/v1", nil))
	if w.Header().Get(stagev1.HeaderDecline) == "" {
		t.Errorf("response is %d with %v, want a decline", w.Code, w.Header())
	}
}
