package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// way is a trail without its times.
func way(t *Trail) string {
	return regexp.MustCompile(`;ms=\d+\.\d+`).ReplaceAllString(t.String(), "")
}

func TestTrail(t *testing.T) {
	t.Parallel()
	declines := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { decline(w) }))
	serves := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "b") }))
	for _, tc := range []struct {
		name, want string
		sockets    []string
	}{
		{"served", "a;outcome=declined, b;outcome=served", []string{declines, serves}},
		{"not found", "a;outcome=declined, host;outcome=served", []string{declines}},
		{"not reached", "a;outcome=unavailable, host;outcome=served", []string{"/nowhere"}},
	} {
		var atHead string
		trail := &Trail{}
		ended := 0
		trail.Ended = func(TrailHop) { ended++ }
		w := &headWriter{ResponseRecorder: httptest.NewRecorder(), head: func() { atHead = way(trail) }}
		r := httptest.NewRequest(http.MethodGet, "/x", nil)
		newChain(t, Config{}, tc.sockets...).ServeHTTP(w, r.WithContext(WithTrail(t.Context(), trail)))
		if atHead != tc.want {
			t.Errorf("%s: %q when the answer begins, want %q", tc.name, atHead, tc.want)
		}
		if ended != len(tc.sockets) {
			t.Errorf("%s: %d hops have ended, want %d", tc.name, ended, len(tc.sockets))
		}
	}
}

// headWriter calls head when the answer begins.
type headWriter struct {
	*httptest.ResponseRecorder
	head func()
}

func (w *headWriter) WriteHeader(code int) {
	w.head()
	w.ResponseRecorder.WriteHeader(code)
}

// A stage that calls is at work while another has the request.
func TestTrailOfCall(t *testing.T) {
	t.Parallel()
	trail := &Trail{}
	trail.begin("a")(Declined)
	trail.begin("b")
	end := trail.begin("c")
	if got, want := way(trail), "a;outcome=declined, b;outcome=called, c;outcome=served"; got != want {
		t.Errorf("while c serves: %q, want %q", got, want)
	}
	end(Served)
	if got, want := way(trail), "a;outcome=declined, b;outcome=called, c;outcome=served"; got != want {
		t.Errorf("then: %q, want %q", got, want)
	}
}

// The call of a stage to the host is on the trail of the request that it is made for.
func TestTrailThroughTheHost(t *testing.T) {
	t.Parallel()
	var h *host
	a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := h.call(r.Context(), "token-a", stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), "/x", nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
	}))
	declines := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { decline(w) }))
	serves := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "c") }))
	h = newHost(t, a, declines, serves)
	var atHead string
	trail := &Trail{}
	w := &headWriter{ResponseRecorder: httptest.NewRecorder(), head: func() { atHead = way(trail) }}
	h.chain.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/x", nil).WithContext(WithTrail(t.Context(), trail)))
	if want := "a;outcome=called, b;outcome=declined, c;outcome=served"; atHead != want || w.Code != http.StatusOK {
		t.Errorf("%d, %q; want %q", w.Code, atHead, want)
	}
}
