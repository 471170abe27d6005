package system

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// With kube-apiserver's configuration of tracing, a request has one trace from the client to etcd: the spans of kube-apiserver, and
// those of the stages and of the hop to them, each below another up to the client's.
func TestTraceOfRequests(t *testing.T) {
	t.Parallel()
	collectors := map[string]*collector{}
	b := startBeside(t, func(name, _ string) map[string]string {
		c, err := startCollector()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.stop(false) })
		collectors[name] = c
		return map[string]string{"tracing-config-file": write(t, "tracing.yaml", c.config())}
	})
	for _, s := range b.both() {
		apply(t, s.Server, widgets)
		awaitWidgets(t, s.Server)
	}
	const (
		parent = "00f067aa0ba902b7"
		cms    = "/api/v1/namespaces/default/configmaps"
		crs    = "/apis/test.example.com/v1/namespaces/default/widgets"
	)
	for i, r := range []struct{ method, path, body, last string }{
		{http.MethodPost, cms, `{"metadata": {"name": "traced"}}`, "etcdserverpb.KV/Txn"},
		{http.MethodGet, cms + "/traced", "", "etcdserverpb.KV/Range"},
		{http.MethodPost, crs, `{"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": "traced"}}`, "etcdserverpb.KV/Txn"},
		{http.MethodDelete, crs + "/traced", "", "etcdserverpb.KV/Txn"},
		{http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices/v1.", "", "etcdserverpb.KV/Range"},
	} {
		id := fmt.Sprintf("%032x", i+1)
		trace, _ := hex.DecodeString(id)
		root, _ := hex.DecodeString(parent)
		names := map[string]map[string]int{}
		for _, name := range []string{"kube-apiserver", "catena"} {
			s := b.both()[name]
			do(t, s.Config(cluster.Admin), r.method, r.path, r.body, "Traceparent: 00-"+id+"-"+parent+"-01")
			eventually(t, name+" sends the spans of "+r.method+" "+r.path, func() bool {
				spans := collectors[name].trace(trace)
				names[name] = map[string]int{}
				for _, span := range spans {
					names[name][span.GetName()]++
					if !slices.Equal(span.GetParentSpanId(), root) && !slices.ContainsFunc(spans, func(p *tracev1.Span) bool { return slices.Equal(p.GetSpanId(), span.GetParentSpanId()) }) {
						return false // its parent is yet to come
					}
				}
				return names[name][r.last] > 0 && within(names["kube-apiserver"], names[name])
			}, func() string { return fmt.Sprintf("%v", names) })
		}
		for name := range names["catena"] {
			if names["kube-apiserver"][name] == 0 && !strings.HasPrefix(name, "stage ") {
				t.Errorf("%s %s: kube-apiserver has no span %q", r.method, r.path, name)
			}
		}
	}
}

// within reports whether there is as much of everything.
func within(want, got map[string]int) bool {
	for name := range maps.Keys(want) {
		if got[name] < want[name] {
			return false
		}
	}
	return true
}

func awaitWidgets(t *testing.T, s *cluster.Server) {
	t.Helper()
	eventually(t, "widgets are served", func() bool {
		return do(t, s.Config(cluster.Admin), http.MethodGet, "/apis/test.example.com/v1/namespaces/default/widgets", "").code == http.StatusOK
	})
}
