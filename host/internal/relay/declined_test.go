package relay

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// reported records what the propagator gets.
type reported struct{ all []string }

func (*reported) HostHeader(string) bool { return false }

func (*reported) AppendRequestHeaders(dst []byte, _ *http.Request) []byte { return dst }

func (*reported) HostResponseHeader(string) bool { return false }

func (c *reported) ResponseHeader(_ *http.Request, from Sender, key, value string) {
	c.all = append(c.all, fmt.Sprintf("%s serves=%t kubernetes=%t %s %s", from.Stage, from.Serves, from.Kubernetes, key, value))
}

// What a stage reports about a request reaches the propagator whether it declines or responds.
func TestHeadersOfADecline(t *testing.T) {
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
		if r.URL.Path == "/none" {
			decline(w)
		}
	}))
	propagator := &reported{}
	srv := serve(t, newChain(t, Config{Propagator: propagator}, first, second))
	for path, other := range map[string][]string{"/some": {"second"}, "/none": nil} {
		propagator.all = nil
		resp, _ := fetch(t, srv, "GET", path, nil)
		if got, want := resp.Header["Warning"], []string{`299 - "first"`, `299 - "second"`}; !slices.Equal(got, want) {
			t.Errorf("%s: warnings %q, want %q", path, got, want)
		}
		served := other != nil
		if want := []string{"a serves=false kubernetes=false X-Catena-Audit first", fmt.Sprintf("b serves=%t kubernetes=false X-Catena-Audit second", served)}; !slices.Equal(propagator.all, want) {
			t.Errorf("%s: reported %q, want %q", path, propagator.all, want)
		}
		if got := resp.Header["X-Other"]; !slices.Equal(got, other) {
			t.Errorf("%s: X-Other %q: only warnings of a decline reach the client", path, got)
		}
	}
}
