package sdk_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// clumsy breaks the rules for handlers, each in its own path.
func clumsy(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/declines-after-writing":
			_, _ = io.WriteString(w, "half")
			env.Next.ServeHTTP(w, r) // is a call, since the response has begun
		case "/insists":
			_, _ = io.WriteString(w, "half")
			sdk.Decline(w)
		case "/writes-after-declining":
			env.Next.ServeHTTP(w, r)
			w.Header().Set("X-Mine", "1")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "mine")
		case "/declines-twice":
			sdk.Decline(w)
			sdk.Decline(w)
		case "/calls-after-declining":
			env.Next.ServeHTTP(w, r)
			env.Call.ServeHTTP(w, r)
		case "/reads-and-declines":
			_, _ = io.Copy(io.Discard, r.Body)
			sdk.Decline(w)
		}
	}), nil
}

// What a handler does wrong is an error for its own request alone, and the log says what
// it was.
func TestClumsyHandlers(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") })
	for path, want := range map[string]struct {
		status   int // 0: broken off
		body     string
		declined bool
		log      string
	}{
		"/declines-after-writing": {status: 200, body: "halfnext"},
		"/insists":                {log: "declines a request after its response has begun"},
		"/writes-after-declining": {status: 200, body: "next", declined: true, log: "has responded to a request that it had declined"},
		"/declines-twice":         {status: 200, body: "next", declined: true},
		"/calls-after-declining":  {status: 200, body: "next", declined: true, log: "has responded to a request that it had declined"},
		"/reads-and-declines":     {status: 500, log: "after reading from its body"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			stage := stagetest.Start(t, sdk.Stage{Name: "clumsy", New: clumsy}, stagetest.Options{Next: next})
			resp, err := http.Post(stage.URL+path, "text/plain", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			switch {
			case want.status == 0:
				if err == nil && resp.StatusCode == http.StatusOK {
					t.Errorf("looks complete: %q", body)
				}
			case err != nil || resp.StatusCode != want.status || want.body != "" && string(body) != want.body || resp.Header.Get("X-Mine") != "":
				t.Errorf("%d %q %v", resp.StatusCode, body, err)
			}
			if (stage.Declined() == 1) != want.declined {
				t.Errorf("declined: %d", stage.Declined())
			}
			eventually(t, "log: "+want.log, func() bool { return strings.Contains(stage.Log(), want.log) })
			if got := stage.Get(t, "/fine"); got.Status != http.StatusOK {
				t.Errorf("writtenAfterDecline: %d", got.Status)
			}
		})
	}
}

// A stage stops although a hook and a request do not, and says which.
func TestDeafStageStops(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	begun := make(chan struct{}, 2)
	destroyed := make(chan struct{})
	stage := stagetest.Start(t, sdk.Stage{Name: "deaf", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/")
		env.OnDestroy(func() { close(destroyed) })
		env.PostStartHook("never-ends", func(context.Context) error {
			begun <- struct{}{}
			<-release
			return nil
		})
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			begun <- struct{}{}
			<-release
		}), nil
	}}, stagetest.Options{})
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = stage.RPC.RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: "never-ends"}) }()
	go func() {
		if resp, err := http.Get(stage.URL + "/"); err == nil {
			resp.Body.Close()
		}
	}()
	<-begun
	<-begun
	if n := stage.Drain(t, 20*time.Millisecond); n != 1 {
		t.Errorf("%d requests at the end of the drain, want 1", n)
	}
	stage.Stop(t)
	<-destroyed
	for _, want := range []string{`"hooks have not ended with the stage","@timestamp"`, `"hooks":["never-ends"]`, `"requests have not ended with the stage"`} {
		if !strings.Contains(stage.Log(), want) {
			t.Errorf("no %s in the log", want)
		}
	}
}
