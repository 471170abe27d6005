package generation

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// The test binary is also the stage: this variable is set then, to what it does wrong.
const envStage = "GENERATION_TEST_STAGE"

func TestMain(m *testing.M) {
	switch os.Getenv(envStage) {
	case "":
		os.Exit(m.Run())
	case "breaks its stream":
		serve(&breaksStream{})
	case "sends no first event", "ends its stream", "takes its time", "claims nonsense", "claims nonsense at first":
		serve(&refused{fault: os.Getenv(envStage)})
	default:
		sdk.Main(sdk.Stage{Name: "b", Version: "v1", New: func(env *sdk.Env) (http.Handler, error) {
			if os.Getenv(envStage) == "never configures itself" {
				select {}
			}
			env.Claim("/b")
			env.HealthCheck("well", sdk.HealthKinds{Livez: true}, func(context.Context) error { return nil })
			return http.NotFoundHandler(), nil
		}})
	}
}

// serve is the main function of a stage that was built without the SDK.
func serve(s stagev1.StageServer) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: stagev1.Handshake(), Plugins: stagev1.Plugins(s), GRPCServer: plugin.DefaultGRPCServer,
		Logger: hclog.NewNullLogger(),
	})
}

// breaksStream is a stage whose first stream of events breaks after the first event, and
// which claims something else by then.
type breaksStream struct {
	stagev1.UnimplementedStageServer
	streams atomic.Int64
}

func (*breaksStream) Describe(context.Context, *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	return &stagev1.DescribeResponse{Name: "b"}, nil
}

func (s *breaksStream) Watch(_ *stagev1.WatchRequest, stream stagev1.Stage_WatchServer) error {
	path := "/before"
	first := s.streams.Add(1) == 1
	if !first {
		path = "/after"
	}
	claims := []*stagev1.Claim{{Path: path, Match: stagev1.Claim_EXACT}}
	if err := stream.Send(&stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{Claims: claims}}); err != nil {
		return err
	}
	if first {
		return errors.New("the stream breaks")
	}
	<-stream.Context().Done()
	return nil
}

// refused is a stage that the host takes no requests to.
type refused struct {
	breaksStream
	fault string
}

func (s *refused) Configure(context.Context, *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	if s.fault == "claims nonsense at first" {
		return &stagev1.ConfigureResponse{Claims: []*stagev1.Claim{{Path: "b", Match: stagev1.Claim_EXACT}}}, nil
	}
	return &stagev1.ConfigureResponse{}, nil
}

func (s *refused) PrepareRun(context.Context, *stagev1.PrepareRunRequest) (*stagev1.PrepareRunResponse, error) {
	claim := &stagev1.Claim{Path: "/b", Match: stagev1.Claim_EXACT}
	if s.fault == "claims nonsense" {
		claim.Match = 9
	}
	return &stagev1.PrepareRunResponse{Claims: []*stagev1.Claim{claim}, HealthChecks: []*stagev1.HealthCheck{{Name: "slow", Readyz: true}}}, nil
}

func (s *refused) Watch(r *stagev1.WatchRequest, stream stagev1.Stage_WatchServer) error {
	switch s.fault {
	case "sends no first event":
		<-stream.Context().Done()
		return stream.Context().Err()
	case "ends its stream":
		return nil
	}
	return s.breaksStream.Watch(r, stream)
}

func (s *refused) CheckHealth(ctx context.Context, _ *stagev1.CheckHealthRequest) (*stagev1.CheckHealthResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// launch starts a stage that does the given thing wrong.
func launch(t *testing.T, fault string) *Generation {
	t.Helper()
	run, err := os.MkdirTemp("", "gen") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	if fault == "" {
		fault = "nothing"
	}
	log := hclog.NewNullLogger()
	spec := Spec{Name: "b", Binary: os.Args[0], Env: map[string]string{envStage: fault}}
	l, err := NewListener(run, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	opts := &Options{DataDir: t.TempDir(), RuntimeDir: run, Log: log, StageLog: log}
	g, err := Launch(t.Context(), opts, Config{Spec: spec, StartTimeout: patience, Listener: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Kill)
	return g
}

// prepare takes a generation to the point at which it serves.
func prepare(t *testing.T, g *Generation) {
	t.Helper()
	err := g.ValidateConfig(t.Context())
	if err == nil {
		_, err = g.Configure(t.Context(), nil)
	}
	if err == nil {
		err = g.PrepareRun(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefused has stages that break a rule of the protocol that the host relies on.
func TestRefused(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{
		"sends no first event":     "Watch has sent no first event",
		"ends its stream":          "Watch has ended without a first event",
		"claims nonsense":          "unknown match 9",
		"claims nonsense at first": `claim "b": a path begins with /`,
		"takes its time":           "CheckHealth has not returned before its deadline of 2s, 3 times in a row",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			g := launch(t, fault)
			if fault == "sends no first event" {
				g.startTimeout = time.Second
			}
			_, err := g.Configure(t.Context(), nil)
			if err == nil {
				err = g.PrepareRun(t.Context())
			}
			if err == nil {
				err = g.AwaitReady(t.Context(), nil)
			}
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `stage "b"`) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

func TestConfigIsJSON(t *testing.T) {
	t.Parallel()
	g := launch(t, "good")
	req, err := g.configureRequest(nil)
	if err != nil || string(req.GetConfig()) != "null" || !json.Valid(req.GetConfig()) {
		t.Errorf("no configuration is sent as %q, %v; want null", req.GetConfig(), err)
	}
}

// TestStreamOfEventsThatBreaksIsMadeAgain has a stage whose claims change while its events
// do not come.
func TestStreamOfEventsThatBreaksIsMadeAgain(t *testing.T) {
	t.Parallel()
	g := launch(t, "breaks its stream")
	claims := make(chan string, 10)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		g.Follow(t.Context(), func(Change) { claims <- g.Report().Claims[0].GetPath() })
	}()
	var got []string
	for len(got) < 2 {
		select {
		case path := <-claims:
			got = append(got, path)
		case <-time.After(patience):
			t.Fatalf("claims %q, and no others come", got)
		}
	}
	if !slices.Equal(got, []string{"/before", "/after"}) {
		t.Errorf("claims %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_ = g.Stop(ctx)
	select {
	case <-followed:
	case <-ctx.Done():
		t.Error("a process that has ended is followed")
	}
}

// TestReportOfTheGenerationBeforeCountsUntilSignalsCome inherits claims.
func TestReportOfTheGenerationBeforeCountsUntilSignalsCome(t *testing.T) {
	t.Parallel()
	g := &Generation{opts: &Options{Log: hclog.NewNullLogger()}, pending: map[string]bool{"x": true, "y": true}}
	g.Inherit(Report{Paths: []string{"/old"}})
	claims := &stagev1.ClaimsChanged{ListedPaths: []string{"/new"}, Claims: []*stagev1.Claim{{Path: "/new", Match: stagev1.Claim_EXACT}}}
	for _, step := range []struct {
		event    *stagev1.Event
		want     string
		complete bool
	}{
		{&stagev1.Event{ClaimsChanged: claims}, "/old", false},
		{&stagev1.Event{Signaled: []string{"x", "unknown"}}, "/old", false},
		{&stagev1.Event{Signaled: []string{"x", "y"}}, "/new", true},
	} {
		if !g.event(step.event).Report {
			t.Errorf("%v changes nothing", step.event)
		}
		if got := strings.Join(g.Report().Paths, " "); got != step.want || g.Complete() != step.complete {
			t.Errorf("after %v: paths %s, complete %t", step.event, got, g.Complete())
		}
	}
}

// TestKnowsComparesWhatConfigureReported, in any order.
func TestKnowsComparesWhatConfigureReported(t *testing.T) {
	t.Parallel()
	reports := func(stage string, paths ...string) []lifecycle.Report[Report] {
		return []lifecycle.Report[Report]{{Stage: stage, Report: Report{configured: paths}}}
	}
	g := &Generation{downstream: reports("c", "/x", "/y")}
	if !g.Knows(reports("c", "/y", "/x", "/x")) || g.Knows(reports("c", "/x")) || g.Knows(reports("d", "/x", "/y")) || g.Knows(nil) {
		t.Error("other paths, or another stage, are taken for the same")
	}
	other := reports("c", "/x", "/y")
	if other[0].Report.builtIn = "v1.37.0 as 1.36"; g.Knows(other) {
		t.Error("built-in resources of another release are taken for the same")
	}
}

// TestKubernetesVersion is the release of the binary, unless a flag emulates another.
func TestKubernetesVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		release string
		flags   []string
		want    string
	}{
		{"", nil, ""}, {"nonsense", nil, ""}, {"v1.37.0", []string{"v=2"}, "1.37"}, {"v1.37.0-rc.1+x", nil, "1.37"},
		{"v1.37.0", []string{"emulated-version=kube=1.36", "v=2"}, "1.36"}, {"v1.37.0", []string{"emulated-version=1.36"}, "1.36"},
		{"v1.37.0", []string{"emulated-version=kube=1.36,other=1.2"}, "1.36"}, {"", []string{"emulated-version=1.36"}, ""},
	} {
		if got := kubernetesVersion(&stagev1.Kubernetes{Release: c.release}, c.flags); got != c.want {
			t.Errorf("%q with %v: %q, want %q", c.release, c.flags, got, c.want)
		}
	}
	if got := kubernetesVersion(nil, nil); got != "" {
		t.Errorf("without a release: %q", got)
	}
}

// TestFullBacklog probes a stage that responds to calls and takes no connections.
func TestFullBacklog(t *testing.T) {
	t.Parallel()
	g := launch(t, "")
	prepare(t, g)
	alive := func(g *Generation) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return g.Alive(ctx)
	}
	if err := alive(g); err != nil {
		t.Fatal(err)
	}
	l, err := process.NewListener(g.opts.RuntimeDir, "full")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fill(t, l.Path())
	silent := &Generation{process: g.process, prepared: g.prepared, listener: l}
	if err := alive(silent); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("a stage that takes no connection: %v", err)
	}
}

// fill makes connections to a socket that no process accepts from, until it takes no more.
func fill(t *testing.T, socket string) {
	t.Helper()
	for {
		c, err := net.Dial("unix", socket)
		if errors.Is(err, syscall.EAGAIN) { // which the kernel says at once
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

// TestStartTimeoutNamesItsKey has a stage that never configures itself.
func TestStartTimeoutNamesItsKey(t *testing.T) {
	t.Parallel()
	g := launch(t, "never configures itself")
	g.startTimeout = 100 * time.Millisecond
	_, err := g.Configure(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "100ms") || !strings.Contains(err.Error(), "stages.b.startTimeout") {
		t.Errorf("got %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*stagev1.PrepareRunResponse{
		"post-start hook":          {PostStartHooks: []string{"start", "a\nready"}},
		"pre-shutdown hook":        {PreShutdownHooks: []string{"a\x1b[2J"}},
		"health check":             {HealthChecks: []*stagev1.HealthCheck{{Name: "db\n[+]db"}}},
		"mux-and-discovery signal": {MuxAndDiscoverySignals: []string{"a\u202eb"}},
		"server_check":             {HealthChecks: []*stagev1.HealthCheck{{Name: "db", ServerCheck: "a\nb"}}},
	} {
		err := CheckReport(r)
		if err == nil || !strings.Contains(err.Error(), name+" \"") || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, r := range map[string]*stagev1.PrepareRunResponse{
		`two of its post-start hooks have the name "a"`: {PostStartHooks: []string{"a", "b", "a"}},
		"a health check has no name":                    {HealthChecks: []*stagev1.HealthCheck{{}}},
		`claim "x": a path begins with /`:               {Claims: []*stagev1.Claim{{Path: "x", Match: stagev1.Claim_EXACT}}},
		"a stage can have 100000":                       {Claims: make([]*stagev1.Claim, bounds.Claims+1)},
	} {
		if err := CheckReport(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	good := &stagev1.PrepareRunResponse{PostStartHooks: []string{"größe/a b"}, HealthChecks: []*stagev1.HealthCheck{{Name: "db"}}}
	if err := CheckReport(good); err != nil {
		t.Error(err)
	}
}
