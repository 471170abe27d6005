package stagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// RunPostStartHooks runs all post-start hooks at once, as the host does when the server
// serves, and fails the test if one fails.
func (s *Stage) RunPostStartHooks(t testing.TB) {
	t.Helper()
	s.runHooks(t, s.Prepared.GetPostStartHooks(), s.RPC.RunPostStartHook)
}

// RunPreShutdownHooks runs all pre-shutdown hooks at once, and fails the test if one fails.
func (s *Stage) RunPreShutdownHooks(t testing.TB) {
	t.Helper()
	s.runHooks(t, s.Prepared.GetPreShutdownHooks(), s.RPC.RunPreShutdownHook)
}

type hookRPC = func(context.Context, *stagev1.RunHookRequest, ...grpc.CallOption) (*stagev1.RunHookResponse, error)

func (s *Stage) runHooks(t testing.TB, names []string, run hookRPC) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			if _, err := run(ctx, &stagev1.RunHookRequest{Name: name}); err != nil {
				errs[i] = fmt.Errorf("hook %s: %w", name, err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Health runs all health checks and returns the errors of those that fail, by name.
func (s *Stage) Health(t testing.TB) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), healthTimeout)
	defer cancel()
	resp, err := s.RPC.CheckHealth(ctx, &stagev1.CheckHealthRequest{})
	if err != nil {
		t.Fatalf("CheckHealth: %v", err)
	}
	failed := map[string]string{}
	for _, r := range resp.GetResults() {
		if r.GetError() != "" {
			failed[r.GetName()] = r.GetError()
		}
	}
	return failed
}

// healthTimeout is the host's.
const healthTimeout = 2 * time.Second

// Metrics returns the stage's metrics in the text format.
func (s *Stage) Metrics(t testing.TB) string {
	t.Helper()
	stream, err := s.RPC.GatherMetrics(t.Context(), &stagev1.GatherMetricsRequest{})
	if err != nil {
		t.Fatalf("GatherMetrics: %v", err)
	}
	var text bytes.Buffer
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("GatherMetrics: %v", err)
		}
		text.Write(piece.GetText())
	}
}

// Drain tells the stage that it gets no new requests, and returns how many are still
// running when it has responded: at once without any, else when wait is over. Tests
// also use it to find out whether a request has ended whose client is gone.
func (s *Stage) Drain(t testing.TB, wait time.Duration) int {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		resp, err := s.RPC.Drain(ctx, &stagev1.DrainRequest{Spread: durationpb.New(0)})
		cancel()
		if err == nil {
			return int(resp.GetRunning())
		}
		// The response may be late on a busy machine.
		if status.Code(err) != codes.DeadlineExceeded || wait > timeout {
			t.Fatalf("Drain: %v", err)
		}
		wait = max(2*wait, time.Millisecond)
	}
}

// Problems asks the stage what is wrong with a configuration, without applying it. Each
// is "KEY: MESSAGE".
func (s *Stage) Problems(t testing.TB, config any) []string {
	t.Helper()
	text, err := encodeConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.RPC.ValidateConfig(t.Context(), &stagev1.ValidateConfigRequest{Config: text, Flags: s.opts.Flags})
	if err != nil {
		t.Fatalf("ValidateConfig: %v", err)
	}
	var problems []string
	for _, p := range resp.GetProblems() {
		problems = append(problems, sdk.ConfigProblem{Key: p.GetKey(), Message: p.GetMessage()}.Error())
	}
	return problems
}

// followed is what the stage has reported.
type followed struct {
	mu       sync.Mutex
	claims   []sdk.Claim
	signaled []string
	changed  chan struct{} // closed at the next change
}

// follow receives the stage's reports until ctx ends.
func (s *Stage) follow(ctx context.Context) {
	stream, err := s.RPC.Watch(ctx, &stagev1.WatchRequest{})
	for err == nil {
		var e *stagev1.Event
		if e, err = stream.Recv(); err == nil {
			s.followed.take(e)
		}
	}
}

func (f *followed) take(e *stagev1.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.GetClaimsChanged() != nil {
		f.claims = stagev1.DecodeClaims(e.GetClaimsChanged().GetClaims())
	}
	f.signaled = append(f.signaled, e.GetSignaled()...)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *followed) setClaims(claims []*stagev1.Claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims = stagev1.DecodeClaims(claims)
}

// await returns when the condition holds, or false when ctx has ended.
func (f *followed) await(ctx context.Context, condition func() bool) bool {
	for {
		f.mu.Lock()
		ok, changed := condition(), f.changed
		f.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// AwaitClaimed waits until the stage claims path, or does not claim it any more.
func (s *Stage) AwaitClaimed(t testing.TB, path string, claimed bool) {
	t.Helper()
	covers := func(c sdk.Claim) bool { return c.Covers(path) }
	s.awaitReport(t, fmt.Sprintf("claims %s: %t", path, claimed), func() bool {
		return slices.ContainsFunc(s.followed.claims, covers) == claimed
	})
}

// AwaitSignals waits for all mux-and-discovery signals of the stage.
func (s *Stage) AwaitSignals(t testing.TB) {
	t.Helper()
	s.awaitReport(t, "signals", func() bool {
		for _, name := range s.Prepared.GetMuxAndDiscoverySignals() {
			if !slices.Contains(s.followed.signaled, name) {
				return false
			}
		}
		return true
	})
}

func (s *Stage) awaitReport(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if !s.followed.await(ctx, condition) {
		t.Fatalf("not within %s: %s", timeout, what)
	}
}
