package tracing_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/tracing"
)

// collector receives spans.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]*tracev1.Span
}

func (c *collector) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				for _, a := range r.GetResource().GetAttributes() {
					if a.GetKey() == "service.name" {
						c.spans[a.GetValue().GetStringValue()+" "+span.GetName()] = span
					}
				}
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// serve starts the collector and returns the flag that leads to it.
func (c *collector) serve(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + ln.Addr().String() + "\nsamplingRatePerMillion: 0\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "tracing-config-file=" + file
}

func traced(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, span := env.Tracer().Start(r.Context(), r.URL.Path)
		span.End()
	}), nil
}

// The spans of sampled requests are exported as children of the host's, those of others
// are not.
func TestExport(t *testing.T) {
	t.Parallel()
	c := &collector{spans: map[string]*tracev1.Span{}}
	stage := stagetest.Start(t, sdk.Stage{Name: "traced", New: traced, Tracing: tracing.FromHost}, stagetest.Options{Flags: []string{"v=2", c.serve(t)}})
	for path, flags := range map[string]string{"/sampled": "01", "/not": "00"} {
		parent := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags
		stage.Do(t, stagetest.Call{Path: path, Header: http.Header{"Traceparent": {parent}}})
	}
	stage.Get(t, "/root")
	stage.Stop(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	span := c.spans["catena-stage-traced /sampled"]
	if len(c.spans) != 1 || span == nil || string(span.GetParentSpanId()) != "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7" {
		t.Errorf("%v", c.spans)
	}
}

func TestNoExport(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "traced", New: traced, Tracing: tracing.FromHost}, stagetest.Options{})
	if got := stage.Get(t, "/"); got.Status != http.StatusOK {
		t.Errorf("%d", got.Status)
	}
	gone := stagetest.Launch(t, sdk.Stage{Name: "traced", New: traced, Tracing: tracing.FromHost}, stagetest.Options{Flags: []string{"tracing-config-file=/gone"}})
	if err := gone.Configure(); err == nil {
		t.Error("a file that is not there is no error")
	}
}
