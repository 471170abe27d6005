package apiserver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// apiStage returns a stage with a server that has no API groups. setup adds to
// the server what the test is about.
func apiStage(setup func(*genericapiserver.GenericAPIServer)) sdk.Stage {
	return apiStageOf(func(server *apiserver.Server) {
		if setup != nil {
			setup(server.GenericAPIServer)
		}
	})
}

func apiStageOf(setup func(*apiserver.Server)) sdk.Stage {
	return sdk.Stage{Name: "api", New: func(env *sdk.Env) (http.Handler, error) {
		adapter, err := apiserver.New(env)
		if err != nil {
			return nil, err
		}
		scheme := runtime.NewScheme()
		metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
		config := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
		config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
		config.AddReadyzChecks(healthz.NamedCheck("only-ready", func(*http.Request) error { return errors.New("not today") }))
		adapter.Configure(config)
		generic, err := config.Complete(nil).New("api", adapter.Delegate())
		if err != nil {
			return nil, err
		}
		server := apiserver.Server{GenericAPIServer: generic, StartupChecks: []string{"late"}}
		setup(&server)
		return adapter.Serve(server)
	}}
}

// handle adds a handler at /own.
func handle(handler http.HandlerFunc) func(*genericapiserver.GenericAPIServer) {
	return func(server *genericapiserver.GenericAPIServer) {
		server.Handler.NonGoRestfulMux.Handle("/own", handler)
		server.Handler.NonGoRestfulMux.HandlePrefix("/below/", handler)
	}
}

// ask sends a request as the host does and returns the stage's own response.
func ask(t *testing.T, stage *stagetest.Stage, path string, headers map[string]string) *http.Response {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", stage.Socket())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://stage"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestServerReportsItselfToTheHost(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, apiStage(func(server *genericapiserver.GenericAPIServer) {
		handle(func(http.ResponseWriter, *http.Request) {})(server)
		server.AddPostStartHookOrDie("mine", func(genericapiserver.PostStartHookContext) error { return nil })
		for _, name := range []string{"late", "etcd"} {
			if err := server.AddHealthChecks(healthz.NamedCheck(name, func(*http.Request) error { return nil })); err != nil {
				t.Error(err)
			}
		}
	}), stagetest.Options{})

	for path, want := range map[string]bool{
		"/own": true, "/own/": true, "/below/x": true, "/apis": true, "/apis/": true,
		"/apis/group": false, "/own/x": false, "/": false, "/healthz": false, "/readyz/ping": false,
		"/livez/etcd": false, "/metrics": false, "/metrics/slis": false, "/version": false, "/debug/pprof/": false,
	} {
		if got := stage.Claimed(path); got != want {
			t.Errorf("%s: claimed is %v, want %v", path, got, want)
		}
	}
	if want := []string{"/apis", "/below/", "/own"}; !slices.Equal(stage.Prepared.ListedPaths, want) {
		t.Errorf("listed paths are %q, want %q", stage.Prepared.ListedPaths, want)
	}
	if !slices.Contains(stage.Prepared.PostStartHooks, "mine") {
		t.Errorf("post-start hooks are %q, without mine", stage.Prepared.PostStartHooks)
	}
	kinds := map[string]*stagev1.HealthCheck{}
	for _, check := range stage.Prepared.HealthChecks {
		kinds[check.Name] = check
	}
	if c := kinds["only-ready"]; !c.GetReadyz() || c.GetLivez() || c.GetHealthz() {
		t.Errorf("check only-ready is %v, want readyz alone", c)
	}
	if c := kinds["poststarthook/mine"]; !c.GetReadyz() || !c.GetLivez() || !c.GetHealthz() || !c.GetStartup() {
		t.Errorf("check of the hook is %v, want all endpoints, and the grace period of the start", c)
	}
	if c := kinds["late"]; !c.GetStartup() || kinds["only-ready"].GetStartup() {
		t.Errorf("checks with the grace period of the start: late %v, only-ready %v", c, kinds["only-ready"])
	}
	if got := kinds["etcd"].GetServerCheck(); got != "etcd" {
		t.Errorf("the check of etcd counts for %q of the server", got)
	}
	for _, name := range []string{"ping", "log", "shutdown"} {
		if kinds[name] != nil {
			t.Errorf("check %s, which the host has, is reported", name)
		}
	}
}

// results returns the errors of the health checks, by name.
func results(t *testing.T, stage *stagetest.Stage) map[string]string {
	t.Helper()
	response, err := stage.RPC.CheckHealth(t.Context(), &stagev1.CheckHealthRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, result := range response.Results {
		all[result.Name] = result.Error
	}
	return all
}

func TestDecline(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, apiStage(nil), stagetest.Options{})
	response := ask(t, stage, "/apis/other/v1/things", map[string]string{stagev1.HeaderAuditLevel: "Metadata"})
	if response.Header.Get(stagev1.HeaderDecline) == "" {
		t.Errorf("response is %s with %v, want a decline", response.Status, response.Header)
	}
	if response := ask(t, stage, "/apis", nil); response.StatusCode != http.StatusOK {
		t.Errorf("/apis: %s", response.Status)
	}
}

// TestIncompleteServerDoesNotDecline is about what must not happen while a
// server cannot know all of its paths yet: its requests wait.
func TestIncompleteServerDoesNotDecline(t *testing.T) {
	t.Parallel()
	complete := make(chan struct{})
	stage := stagetest.Start(t, apiStage(func(server *genericapiserver.GenericAPIServer) {
		if err := server.RegisterMuxAndDiscoveryCompleteSignal("mine", complete); err != nil {
			t.Error(err)
		}
	}), stagetest.Options{Delegates: []sdk.Delegate{{
		Name: "behind", ListedPaths: []string{"/", "/apis", "/apis/behind", "/apis/behind/v1", "/only"}, Handler: http.NotFoundHandler(),
	}}})
	if want := []string{"mine"}; !slices.Equal(stage.Prepared.MuxAndDiscoverySignals, want) {
		t.Errorf("signals are %q, want %q", stage.Prepared.MuxAndDiscoverySignals, want)
	}
	declines := func(path string) bool {
		return ask(t, stage, path, nil).Header.Get(stagev1.HeaderDecline) != ""
	}
	for _, path := range []string{"/apis/behind/v1/things", "/apis/behind/v1", "/apis/behind/v2", "/only"} {
		if !declines(path) {
			t.Errorf("while incomplete, %s is not declined", path)
		}
	}
	var waiting sync.WaitGroup
	var early atomic.Bool
	early.Store(true)
	for _, path := range []string{"/apis/unknown/v1/things", "/apis/behinder/v1", "/else"} {
		waiting.Go(func() {
			if !declines(path) {
				t.Errorf("when complete, %s is not declined", path)
			}
			if early.Load() {
				t.Errorf("%s is declined while incomplete", path)
			}
		})
	}
	if response := ask(t, stage, "/apis", nil); response.StatusCode != http.StatusOK {
		t.Errorf("/apis: %s", response.Status)
	}
	early.Store(false)
	close(complete)
	waiting.Wait()
}
