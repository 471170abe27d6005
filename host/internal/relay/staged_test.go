package relay

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/catena-dev/catena/sdk/claim"
)

// A process that is about to serve in the chain reads through the chain. What is not found there is its own, if it is of another
// release, or if no stage serves the path.
func TestStaged(t *testing.T) {
	t.Parallel()
	text := func(stage string, found ...string) string {
		return serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, path := range found {
				if r.URL.Path == path {
					w.Write([]byte(stage))
					return
				}
			}
			http.Error(w, stage+" has nothing here", http.StatusNotFound)
		}))
	}
	chain := newChain(t, Config{}, text("serving", "/both", "/old"))
	next := text("next", "/both", "/new")
	for _, c := range []struct {
		method, path string
		other        bool
		want         string
	}{
		{"GET", "/both", true, "200 serving"}, {"GET", "/old", true, "200 serving"}, {"GET", "/new", true, "200 next"}, {"HEAD", "/new", true, "200 "},
		{"GET", "/neither", true, "404 next has nothing here\n"}, {"POST", "/new", true, "404 serving has nothing here\n"},
		{"GET", "/new", false, "404 serving has nothing here\n"}, {"GET", "/elsewhere/new", true, "404 serving has nothing here\n"},
	} {
		staged := map[string]Staged{"a": {Socket: next, OtherAPI: c.other, Claims: []claim.Claim{
			claim.Exact("/both"), claim.Exact("/new"), claim.Exact("/neither"),
		}}}
		w := httptest.NewRecorder()
		chain.ServeHTTP(w, withCall(httptest.NewRequest(c.method, c.path, nil), &call{staged: staged}))
		if got := statusAndBody(w); got != c.want {
			t.Errorf("%s %s, another release %t: %q, want %q", c.method, c.path, c.other, got, c.want)
		}
	}
}

func statusAndBody(w *httptest.ResponseRecorder) string {
	return strconv.Itoa(w.Code) + " " + w.Body.String()
}
