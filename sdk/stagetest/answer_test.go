package stagetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// annotated notes what it does with each path.
func annotated(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sdk.AuditAnnotation(r, "example.com/path", r.URL.Path)
		sdk.AuditAnnotation(r, "example.com/path", "the first one stays")
		sdk.Warn(r, `a "quoted" \ text`+"\nof two lines, ü")
		sdk.Warn(r, `a "quoted" \ text`+"\nof two lines, ü")
		switch r.URL.Path {
		case "/respond":
			_, _ = io.WriteString(w, "response")
		case "/empty":
		case "/decline":
			env.Next.ServeHTTP(w, r)
		case "/call":
			env.Call.ServeHTTP(w, r)
		case "/twice":
			env.Call.ServeHTTP(w, r)
			env.Call.ServeHTTP(discard{http.Header{}}, r)
		case "/panic":
			panic("boom")
		case "/late":
			_, _ = io.WriteString(w, "late")
			_ = http.NewResponseController(w).Flush()
			sdk.AuditAnnotation(r, "example.com/late", "é")
		}
	}), nil
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// An Answer says in which of the two ways a request was passed on, and what the
// stage has added for audit log and client.
func TestAnswer(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "annotated", New: annotated}, stagetest.Options{
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Warning", `299 - "from downstream"`)
			_, _ = io.WriteString(w, "next")
		}),
	})
	own := `a "quoted" \ text of two lines, ü`
	for path, want := range map[string]stagetest.Answer{
		"/respond": {Status: 200, Body: "response", Warnings: []string{own}},
		"/empty":   {Status: 200, Warnings: []string{own}},
		"/decline": {Status: 200, Body: "next", Declined: true, Warnings: []string{own, "from downstream"}},
		"/call":    {Status: 200, Body: "next", Called: 1, Warnings: []string{"from downstream", own}},
		"/twice":   {Status: 200, Body: "next", Called: 2, Warnings: []string{"from downstream", own}},
		"/late":    {Status: 200, Body: "late", Warnings: []string{own}},
		"/panic":   {Status: 500, Body: "This request caused apiserver to panic. Look in the logs for details.\n", Warnings: []string{own}},
	} {
		got := stage.Get(t, path)
		got.Header = nil
		want.Annotations = map[string]string{"example.com/path": path}
		if path == "/late" {
			want.Annotations["example.com/late"] = "é"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// lively has hooks, checks, metrics, claims that change and requests that wait.
func lively(env *sdk.Env) (http.Handler, error) {
	found := make(chan struct{})
	env.MuxComplete("found", found)
	env.Claim("/wait")
	env.PostStartHook("find", func(context.Context) error {
		env.SetClaims(sdk.Exact("/found"))
		close(found)
		return nil
	})
	env.PreShutdownHook("leave", func(context.Context) error { return errors.New("cannot leave") })
	env.HealthCheck("good", sdk.HealthKinds{}, func(context.Context) error { return nil })
	env.HealthCheck("bad", sdk.HealthKinds{}, func(context.Context) error { return errors.New("ill") })
	env.Metrics().MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "size", Help: "Size."}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), nil
}

// failures counts the errors of a test in the place of failing it.
type failures struct {
	testing.TB
	errors []string
}

func (f *failures) Error(args ...any) { f.errors = append(f.errors, fmt.Sprint(args...)) }

func TestLife(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "lively", New: lively, Config: struct{}{}}, stagetest.Options{})
	stage.AwaitClaimed(t, "/wait", true)
	stage.RunPostStartHooks(t)
	stage.AwaitClaimed(t, "/found", true)
	stage.AwaitClaimed(t, "/wait", false)
	stage.AwaitSignals(t)
	if diff := cmp.Diff(map[string]string{"bad": "ill"}, stage.Health(t)); diff != "" {
		t.Error(diff)
	}
	if got := stage.Metrics(t); !strings.Contains(got, "\nsize 0\n") {
		t.Error(got)
	}
	if diff := cmp.Diff([]string{"a: unknown key, there is nothing to configure"}, stage.Problems(t, map[string]int{"a": 1})); diff != "" {
		t.Error(diff)
	}
	failed := &failures{TB: t}
	stage.RunPreShutdownHooks(failed)
	if len(failed.errors) != 1 || !strings.Contains(failed.errors[0], "cannot leave") {
		t.Errorf("%q", failed.errors)
	}
}

// A request whose client has gone ends in the stage.
func TestCancel(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "lively", New: lively}, stagetest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, stage.URL+"/wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req) // returns when the response has begun
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n := stage.Drain(t, 50*time.Millisecond); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	cancel()
	if n := stage.Drain(t, time.Minute); n != 0 {
		t.Errorf("%d requests after the client has gone", n)
	}
}
