package sdk_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func TestHealth(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		for range 3 {
			resp, err := stage.RPC.CheckHealth(t.Context(), &stagev1.CheckHealthRequest{Names: []string{"good", "bad", "panics", "none"}})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, r := range resp.GetResults() {
				got[r.GetName()] = r.GetError()
			}
			want := map[string]string{
				"good": "", "bad": "ill", "panics": "health check panics: panic: check",
				"none": "there is no such health check",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		var resp *stagev1.CheckHealthResponse
		var err error
		for timeout := 2 * time.Second; timeout < patience; timeout *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			resp, err = stage.RPC.CheckHealth(ctx, &stagev1.CheckHealthRequest{})
			cancel()
			if status.Code(err) != codes.DeadlineExceeded {
				break // else the response, which comes just before that, was late on a busy machine
			}
		}
		if err != nil {
			t.Fatalf("a slow check must not take the others with it: %v", err)
		}
		if len(resp.GetResults()) != 4 || !strings.Contains(resp.GetResults()[3].GetError(), "deadline exceeded") {
			t.Errorf("%v", resp.GetResults())
		}
	})
}

// All that a stage says of a check reaches the host; endpoints that it does not name are all three.
func TestHealthCheckReport(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "checked", New: func(env *sdk.Env) (http.Handler, error) {
		pass := func(context.Context) error { return nil }
		env.HealthCheck("a", sdk.HealthKinds{}, pass)
		env.HealthCheck("b", sdk.HealthKinds{Startup: true, ServerCheck: "etcd"}, pass)
		env.HealthCheck("c", sdk.HealthKinds{Readyz: true}, pass)
		return http.NotFoundHandler(), nil
	}}, stagetest.Options{})
	want := []*stagev1.HealthCheck{
		{Name: "a", Livez: true, Readyz: true, Healthz: true},
		{Name: "b", Livez: true, Readyz: true, Healthz: true, Startup: true, ServerCheck: "etcd"},
		{Name: "c", Readyz: true},
	}
	if diff := cmp.Diff(want, stage.Prepared.GetHealthChecks(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}
