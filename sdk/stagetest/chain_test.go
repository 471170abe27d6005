package stagetest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// asker serves /ask/PATH with what it is told when it asks for /PATH in its own name.
func asker(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/ask", "/mine")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path, asks := strings.CutPrefix(r.URL.Path, "/ask"); {
		case asks:
			req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://host"+path, nil)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			resp, err := env.Client().Do(req)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
		case r.URL.Path == "/mine/more":
			env.SetClaims(sdk.Prefix("/more"))
		case r.URL.Path == "/mine/not":
			sdk.Decline(w)
		default:
			fmt.Fprint(w, "mine ", sdk.UserFrom(r.Context()).Name)
		}
	}), nil
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text, " ", r.URL.Path) })
}

// A stage gets what it claims and nothing else, from clients and from itself.
func TestClaimsAreEnforced(t *testing.T) {
	t.Parallel()
	stage := func(opts stagetest.Options) *stagetest.Stage {
		return stagetest.Start(t, sdk.Stage{Name: "asker", New: asker}, opts)
	}
	alone, chain := stage(stagetest.Options{}), stage(stagetest.Options{Next: says("next")})
	server := stage(stagetest.Options{Next: says("next"), API: says("api")})
	for _, c := range []struct {
		stage  *stagetest.Stage
		path   string
		status int
		body   string
	}{
		{alone, "/mine", http.StatusOK, "mine somebody"},
		{alone, "/other", http.StatusNotFound, `serves nothing at /other: stage "asker" does not claim it, and claims [/ask/** /mine/**]; Options.Next is not set`},
		{alone, "/mine/not", http.StatusNotFound, "serves nothing at /mine/not; Options.Next is not set"},
		{chain, "/other", http.StatusOK, "next /other"},
		{alone, "/ask/mine", http.StatusOK, "mine system:catena:stage:asker"},
		{alone, "/ask/other", http.StatusNotFound, "Options.API is not set"},
		{chain, "/ask/other", http.StatusOK, "next /other"},
		{server, "/ask/mine", http.StatusOK, "mine system:catena:stage:asker"},
		{server, "/ask/other", http.StatusOK, "api /other"},
		{server, "/ask/mine/not", http.StatusOK, "api /mine/not"},
		{server, "/mine/not", http.StatusOK, "next /mine/not"},
		{alone, "/ask/ask/ask/mine", http.StatusOK, "mine system:catena:stage:asker"},
	} {
		got := c.stage.Get(t, c.path)
		if got.Status != c.status || !strings.Contains(got.Body, c.body) {
			t.Errorf("%s: %d %s, want %d %s", c.path, got.Status, got.Body, c.status, c.body)
		}
		if got.Unclaimed != (c.path == "/other") {
			t.Errorf("%s: unclaimed: %t", c.path, got.Unclaimed)
		}
	}
	server.Get(t, "/mine/more")
	server.AwaitClaimed(t, "/more", true)
	if got := server.Get(t, "/mine"); got.Body != "next /mine" || server.Claimed("/mine") || !server.Claimed("/more") {
		t.Errorf("after a change of the claims to %v: %q", server.Claims(), got.Body)
	}
}

// What a stage asks for to serve just that comes to an end.
func TestRequestThatComesBack(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "loop", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/loop")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://host/loop", nil)
			resp, err := env.Client().Do(req)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
		}), nil
	}}, stagetest.Options{})
	if got := stage.Get(t, "/loop"); got.Status != http.StatusLoopDetected {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}
