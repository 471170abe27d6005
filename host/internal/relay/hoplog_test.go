package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
)

// way is a log of hops without its times.
func way(t *HopLog) string {
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
		log := &HopLog{}
		ended := 0
		log.Ended = func(LoggedHop) { ended++ }
		w := &headWriter{ResponseRecorder: httptest.NewRecorder(), head: func() { atHead = way(log) }}
		r := httptest.NewRequest(http.MethodGet, "/x", nil)
		newChain(t, Config{}, tc.sockets...).ServeHTTP(w, r.WithContext(WithHopLog(t.Context(), log)))
		if atHead != tc.want {
			t.Errorf("%s: %q when the response begins, want %q", tc.name, atHead, tc.want)
		}
		if ended != len(tc.sockets) {
			t.Errorf("%s: %d hops have ended, want %d", tc.name, ended, len(tc.sockets))
		}
	}
}

// headWriter calls head when the response begins.
type headWriter struct {
	*httptest.ResponseRecorder
	head func()
}

func (w *headWriter) WriteHeader(code int) {
	w.head()
	w.ResponseRecorder.WriteHeader(code)
}
