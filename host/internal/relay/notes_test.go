package relay

import (
	"net/http"
	"slices"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// told records what the carrier gets.
type told struct{ all []string }

func (*told) AppendRequestHeaders(dst []byte, _ *http.Request) []byte { return dst }

func (c *told) ResponseHeader(_ *http.Request, stage, key, value string) {
	c.all = append(c.all, stage+" "+key+" "+value)
}

// What a stage says about a request counts whether it declines or answers.
func TestNotesOfADecline(t *testing.T) {
	t.Parallel()
	note := func(w http.ResponseWriter, name string) {
		w.Header().Set(stagev1.HeaderAudit, name)
		w.Header().Set("Warning", `299 - "`+name+`"`)
		w.Header().Set("X-Other", name)
	}
	first := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		note(w, "first")
		decline(w)
	}))
	second := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(w, "second")
		if r.URL.Path == "/nobody" {
			decline(w)
		}
	}))
	carrier := &told{}
	srv := serve(t, newChain(t, Config{Carrier: carrier}, first, second))
	for path, other := range map[string][]string{"/somebody": {"second"}, "/nobody": nil} {
		carrier.all = nil
		resp, _ := fetch(t, srv, "GET", path, nil)
		if got, want := resp.Header["Warning"], []string{`299 - "first"`, `299 - "second"`}; !slices.Equal(got, want) {
			t.Errorf("%s: warnings %q, want %q", path, got, want)
		}
		if want := []string{"a X-Catena-Audit first", "b X-Catena-Audit second"}; !slices.Equal(carrier.all, want) {
			t.Errorf("%s: told %q, want %q", path, carrier.all, want)
		}
		if got := resp.Header["X-Other"]; !slices.Equal(got, other) {
			t.Errorf("%s: X-Other %q: only warnings of a decline reach the client", path, got)
		}
	}
}
