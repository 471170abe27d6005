// Package compatible holds stages that were built against older versions of the
// protocol, and runs them: what docs/sdk.md promises their authors.
package compatible

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// A stage with nothing but the first protocol starts, serves, calls, declines and stops.
func TestV1(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("next " + r.URL.Path)) })
	stage := stagetest.LaunchProcess(t, stagetest.Build(t, "testdata/v1"), stagetest.Options{Next: next})
	if err := stage.Configure(); err != nil {
		t.Fatal(err)
	}
	if err := stage.PrepareRun(); status.Code(err) != codes.Unimplemented {
		t.Errorf("PrepareRun: %v", err)
	}
	for path, want := range map[string]string{"/old": "old true\n", "/old/next/api": "next /api", "/old/else": "next /old/else"} {
		if got := stage.Get(t, path); got.Status != http.StatusOK || got.Body != want {
			t.Errorf("%s: %d %q, want %q", path, got.Status, got.Body, want)
		}
	}
	if n := stage.Declined(); n != 1 {
		t.Errorf("%d requests were declined, want 1", n)
	}
	_, err := stage.RPC.CheckHealth(t.Context(), &stagev1.CheckHealthRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("CheckHealth: %v", err)
	}
	stage.LoseHost()
	for deadline := time.Now().Add(time.Minute); !stage.Exited(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stage outlives its host")
		}
	}
	if code := stage.ExitCode(); code != 3 {
		t.Errorf("exit status %d, want 3", code)
	}
}
