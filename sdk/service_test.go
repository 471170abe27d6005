package sdk_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func TestDescribe(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		got, err := stage.RPC.Describe(t.Context(), &stagev1.DescribeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got.GetSdk(), "go") {
			t.Errorf("sdk %q", got.GetSdk())
		}
		got.Sdk = ""
		want := &stagev1.DescribeResponse{
			Name: "test", Version: "v1.2.3", Summary: "is tested", ConfigSchema: `{"type":"object"}`, Standby: true, DiscardsBodies: true,
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		problems, err := stage.RPC.ValidateConfig(t.Context(), &stagev1.ValidateConfigRequest{Config: []byte(`{"gretting":"x"}`)})
		if err != nil || len(problems.GetProblems()) != 1 || problems.GetProblems()[0].GetMessage() != "gretting: unknown key (known: fail, greeting)" {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

func TestPrepared(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		claims := []*stagev1.Claim{
			{Path: "/hello", Match: stagev1.Claim_EXACT}, {Path: "/tree", Match: stagev1.Claim_PREFIX}, {Path: "/", Match: stagev1.Claim_PREFIX},
		}
		paths := []string{"/hello", "/tree"}
		configured := &stagev1.ConfigureResponse{ListedPaths: paths, Claims: claims}
		if diff := cmp.Diff(configured, stage.Configured, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		prepared := &stagev1.PrepareRunResponse{
			ListedPaths: paths, Claims: claims,
			PostStartHooks:   []string{"complete", "fails", "panics", "waits"},
			PreShutdownHooks: []string{"last"},
			HealthChecks: []*stagev1.HealthCheck{
				{Name: "bad", Readyz: true}, {Name: "good", Livez: true, Readyz: true, Healthz: true},
				{Name: "panics", Healthz: true}, {Name: "slow", Livez: true},
			},
			MuxAndDiscoverySignals: []string{"installed"},
		}
		if diff := cmp.Diff(prepared, stage.Prepared, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	})
}

// Every way in which a stage can fail to start is an error with the stage's own words,
// and the stage can be stopped then.
func TestStartFails(t *testing.T) {
	launch := map[string]func(*testing.T, stagetest.Options) *stagetest.Stage{
		"service": func(t *testing.T, o stagetest.Options) *stagetest.Stage { return stagetest.Launch(t, testStage(), o) },
		"process": func(t *testing.T, o stagetest.Options) *stagetest.Stage {
			return stagetest.LaunchProcess(t, command(), o)
		},
	}
	t.Parallel()
	for mode, launch := range launch {
		for _, tc := range []struct{ config, want string }{
			{`{"fail":"new"}`, "no luck"},
			{`{"fail":"panic"}`, "New: panic: out of luck"},
			{`{"fail":"claim"}`, `claim "relative": a path begins with /`},
			{`{"fail":"twice"}`, "PostStartHook same: registered twice"},
			{`{"fail":"prepare"}`, "not prepared"},
			{`{"gretting":"x"}`, `config of stage "test": gretting: unknown key (known: fail, greeting)`},
			{`{"greeting":7}`, `config of stage "test": greeting: want string, got number`},
		} {
			t.Run(mode+tc.config, func(t *testing.T) {
				t.Parallel()
				stage := launch(t, stagetest.Options{Config: raw(tc.config)})
				err := stage.Configure()
				if err == nil {
					err = stage.PrepareRun()
				}
				if status.Code(err) != codes.Unknown || status.Convert(err).Message() != tc.want {
					t.Errorf("%v, want %q", err, tc.want)
				}
				stage.Stop(t)
				if want := "destroy 2\ndestroy 1\n"; tc.config[2] == 'f' && !strings.HasSuffix(notes(stage), want) {
					t.Errorf("destroyed: %q", notes(stage))
				}
			})
		}
	}
}

// raw is JSON as it is.
type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func TestOrderOfCalls(t *testing.T) {
	t.Parallel()
	stage := stagetest.Launch(t, testStage(), stagetest.Options{})
	expect := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("PrepareRun first", stage.PrepareRun())
	_, err := stage.RPC.CheckHealth(t.Context(), &stagev1.CheckHealthRequest{})
	expect("CheckHealth first", err)
	watch, err := stage.RPC.Watch(t.Context(), &stagev1.WatchRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	expect("Watch first", err)
	if err := stage.Configure(); err != nil {
		t.Fatal(err)
	}
	expect("Configure again", stage.Configure())
	if err := stage.PrepareRun(); err != nil {
		t.Fatal(err)
	}
	expect("PrepareRun again", stage.PrepareRun())
	stage.Stop(t)
	stage.Stop(t)
	expect("PrepareRun after Stop", stage.PrepareRun())
}

func TestHooks(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		run := func(name string) error {
			_, err := stage.RPC.RunPostStartHook(t.Context(), &stagev1.RunHookRequest{Name: name})
			return err
		}
		for _, tc := range []struct {
			hook string
			code codes.Code
			want string
		}{
			{"complete", codes.OK, ""},
			{"complete", codes.FailedPrecondition, `hook "complete" has run already`},
			{"fails", codes.Unknown, "the hook's own words"},
			{"panics", codes.Unknown, "hook panics: panic: boom"},
			{"none", codes.NotFound, `no hook "none"`},
		} {
			if err := run(tc.hook); status.Code(err) != tc.code || status.Convert(err).Message() != tc.want {
				t.Errorf("%s: %v", tc.hook, err)
			}
		}
		eventually(t, "the stack is in the log", func() bool { return strings.Contains(stage.Log(), "stage_test.go") })

		// The end of the call is not the end of the hook; Stop is.
		ctx, cancel := context.WithCancel(t.Context())
		called := make(chan error, 1)
		go func() {
			_, err := stage.RPC.RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: "waits"})
			called <- err
		}()
		eventually(t, "the hook waits", func() bool { return notes(stage) == "hook waits\n" })
		cancel()
		if err := <-called; status.Code(err) != codes.Canceled {
			t.Errorf("waits: %v", err)
		}
		if _, err := stage.RPC.RunPreShutdownHook(t.Context(), &stagev1.RunHookRequest{Name: "last"}); err != nil {
			t.Errorf("last: %v", err)
		}
		if got := notes(stage); got != "hook waits\npre-shutdown\n" {
			t.Errorf("before Stop: %q", got)
		}
		stage.Stop(t)
		if got := notes(stage); got != "hook waits\npre-shutdown\nhook ended\ndestroy 2\ndestroy 1\n" {
			t.Errorf("after Stop: %q", got)
		}
	})
}

// Drain tells handlers, and waits for those that do not listen as long as it may.
func TestDrain(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		stubborn, err := http.Get(stage.URL + "/wait")
		if err != nil {
			t.Fatal(err)
		}
		listening, err := http.Get(stage.URL + "/until-drain")
		if err != nil {
			t.Fatal(err)
		}
		if running := stage.Drain(t, 2*time.Second); running != 1 {
			t.Errorf("%d requests running, want 1", running)
		}
		body := make([]byte, 8)
		if n, err := listening.Body.Read(body); string(body[:n]) != "drained\n" {
			t.Errorf("%q, %v", body[:n], err)
		}
		listening.Body.Close()
		stubborn.Body.Close()
		if running := stage.Drain(t, patience); running != 0 {
			t.Errorf("%d requests running, want 0", running)
		}
	})
}

// Stop ends the requests and upgraded connections that are left before it destroys
// what they use.
func TestStopEndsRequests(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		for _, path := range []string{"/wait", "/wait-upgraded"} {
			stage := start(t, stagetest.Options{})
			if path == "/wait" {
				resp, err := http.Get(stage.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
			} else {
				conn, _, err := dialUpgrade(stage.URL, path)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			stage.Stop(t)
			if got := notes(stage); got != "request ended\ndestroy 2\ndestroy 1\n" {
				t.Errorf("%s: order of the ends: %q", path, got)
			}
		}
	})
}

// A request that ends when it is told that the stage does so has a whole response, also if it has begun after the drain.
func TestStopLetsRequestsEnd(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		listening, err := http.Get(stage.URL + "/until-drain")
		if err != nil {
			t.Fatal(err)
		}
		defer listening.Body.Close()
		stage.Stop(t)
		if body, err := io.ReadAll(listening.Body); err != nil || string(body) != "drained\n" {
			t.Errorf("%q, %v", body, err)
		}
	})
}

// Stop reaches a stage that is still in New.
func TestStopInNew(t *testing.T) {
	t.Parallel()
	stage := stagetest.Launch(t, testStage(), stagetest.Options{Config: testConfig{Fail: "hang"}})
	failed := make(chan error)
	go func() { failed <- stage.Configure() }()
	eventually(t, "New is running", func() bool { return strings.Contains(notes(stage), "in New") })
	stage.Stop(t)
	if err := <-failed; status.Convert(err).Message() != "context canceled" {
		t.Errorf("Configure: %v", err)
	}
}
