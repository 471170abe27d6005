package sdk_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Watch begins with the present state and follows the changes.
func TestWatch(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		watch, err := stage.RPC.Watch(t.Context(), &stagev1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want *stagev1.Event) {
			t.Helper()
			got, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		}
		expect(&stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{
			Claims: stage.Prepared.GetClaims(), ListedPaths: []string{"/hello", "/tree"},
		}})
		if _, err := stage.RPC.RunPostStartHook(t.Context(), &stagev1.RunHookRequest{Name: "complete"}); err != nil {
			t.Fatal(err)
		}
		expect(&stagev1.Event{Signaled: []string{"installed"}})
		get(t, stage.URL+"/claims")
		var events []*stagev1.Event
		for len(events) == 0 || events[len(events)-1].GetResourceSizes() == nil {
			e, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		changed := events[0].GetClaimsChanged().GetClaims()
		want := []*stagev1.Claim{{Path: "/new", Match: stagev1.Claim_EXACT}, {Path: "/some", Match: stagev1.Claim_CHILD}}
		if diff := cmp.Diff(want, changed, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		sizes := []*stagev1.ResourceSize{{Resource: "widgets.example.com", Count: 3, ObjectBytes: 100}}
		if diff := cmp.Diff(sizes, events[len(events)-1].GetResourceSizes(), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}

		late, err := stage.RPC.Watch(t.Context(), &stagev1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := late.Recv()
		if err != nil || len(first.GetSignaled()) != 1 || len(first.GetResourceSizes()) != 1 || len(first.GetClaimsChanged().GetClaims()) != 2 {
			t.Errorf("a late watch begins with %v, %v", first, err)
		}
		stage.Stop(t)
		if _, err := watch.Recv(); err == nil {
			t.Error("an event after Stop")
		}
	})
}

// A stage that changes its claims faster than the host can read is followed, not queued.
func TestWatchCoalesces(t *testing.T) {
	t.Parallel()
	var env *sdk.Env
	stage := stagetest.Start(t, sdk.Stage{Name: "busy", New: func(e *sdk.Env) (http.Handler, error) {
		env = e
		return nil, nil
	}}, stagetest.Options{})
	watch, err := stage.RPC.Watch(t.Context(), &stagev1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const changes = 100_000
	for range changes {
		env.SetClaims(sdk.Exact("/busy"))
	}
	env.SetClaims(sdk.Exact("/done"))
	for n := 1; ; n++ {
		e, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if claims := e.GetClaimsChanged().GetClaims(); len(claims) == 1 && claims[0].GetPath() == "/done" {
			if n > changes/2 {
				t.Errorf("%d events for %d changes", n, changes)
			}
			return
		}
	}
}
