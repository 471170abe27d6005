package relay

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/a") {
			decline(w)
			return
		}
		w.Header().Set("X-Stage", "a")
		w.WriteHeader(http.StatusTeapot)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "a %s %s %s", r.Method, r.RequestURI, body)
	}))
	b := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/b") {
			decline(w)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "b %s %s %d", r.Method, r.RequestURI, len(body))
	}))
	var seen observed
	srv := serve(t, newChain(t, Config{Observe: seen.observe}, a, b))
	// observe waits for the observation: a response can be whole a moment earlier.
	want := ""
	observe := func(hops string) {
		t.Helper()
		want = strings.TrimPrefix(want+", "+hops, ", ")
		eventually(t, "observed "+want, func() bool { return len(seen.String()) >= len(want) })
		if got := seen.String(); got != want {
			t.Errorf("observed %s\nwant     %s", got, want)
		}
	}

	resp, body := fetch(t, srv, "GET", "/a?x=1", nil)
	if resp.StatusCode != http.StatusTeapot || body != "a GET /a?x=1 " || resp.Header.Get("X-Stage") != "a" {
		t.Errorf("got %d %q %v", resp.StatusCode, body, resp.Header)
	}
	observe("a served")
	if _, body := fetch(t, srv, "POST", "/b", strings.NewReader("small")); body != "b POST /b 5" {
		t.Errorf("small body after a decline: %q", body)
	}
	observe("a declined, b served")
	if _, body := fetch(t, srv, "POST", "/b", strings.NewReader(strings.Repeat("x", 1<<20))); body != "b POST /b 1048576" {
		t.Errorf("large body after a decline: %q", body)
	}
	observe("a declined, b served")
	if _, body := fetch(t, srv, "POST", "/b", io.MultiReader(strings.NewReader("of unknown length"))); body != "b POST /b 17" {
		t.Errorf("chunked body after a decline: %q", body)
	}
	observe("a declined, b served")
	if resp, _ := fetch(t, srv, "GET", "/c", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a path that no stage serves: %d", resp.StatusCode)
	}
	observe("a declined, b declined")
}
