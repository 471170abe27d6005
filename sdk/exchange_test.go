package sdk

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/httpserver"
)

// request is a typical one of a Kubernetes client.
func request(t testing.TB) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods?limit=500", nil)
	for key, value := range map[string]string{
		"Accept":               "application/json, */*",
		"Accept-Encoding":      "gzip",
		"User-Agent":           "kubectl/v1.37.0 (linux/amd64) kubernetes/0000000",
		"Kubectl-Command":      "kubectl get",
		"Kubectl-Session":      "3f5a2b6e-9f0e-4a51-8f2b-7a0e6c2d1b11",
		"Audit-Id":             "0b5d1d5e-5d5e-4f5e-8f5e-0b5d1d5e5d5e",
		"Traceparent":          "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"X-Catena-Request":     "123456",
		"X-Catena-User":        `{"name":"kubernetes-admin","groups":["system:masters","system:authenticated"]}`,
		"X-Catena-Received":    "1760000000000000",
		"X-Catena-Timeout":     "59999",
		"X-Catena-Audit-Level": "Metadata",
	} {
		r.Header.Set(key, value)
	}
	ctx, cancel := context.WithCancel(r.Context())
	t.Cleanup(cancel)
	return r.WithContext(ctx)
}

// What the SDK adds to a request, apart from the server.
func BenchmarkExchange(b *testing.B) {
	b.ReportAllocs()
	r, w, d := request(b), &httpserver.Response{}, newDrain()
	for b.Loop() {
		x, _ := newExchange(w, r, d)
		x.release()
	}
}

func BenchmarkFingerprint(b *testing.B) {
	b.ReportAllocs()
	r := request(b)
	for original := fingerprintOf(r); b.Loop(); {
		if fingerprintOf(r) != original {
			b.Fatal("touched")
		}
	}
}

// A malformed user is none, not one without a name.
func TestUserFrom(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"": "", "x": "", `{"name":"a"}`: "a", `["a"]`: "", `{"name":"\u00fc"}`: "ü"} {
		r := request(t)
		r.Header.Set("X-Catena-User", header)
		r.Header.Set("X-Catena-Request-Info", strings.ReplaceAll(header, "name", "verb"))
		x, r := newExchange(&httpserver.Response{}, r, newDrain())
		switch user := UserFrom(r.Context()); {
		case user == nil && want != "", user != nil && user.Name != want:
			t.Errorf("%q: %v, want %q", header, user, want)
		}
		switch info := RequestInfoFrom(r.Context()); {
		case info == nil && want != "", info != nil && info.Verb != want:
			t.Errorf("%q: %v, want %q", header, info, want)
		}
		x.release()
	}
	if UserFrom(t.Context()) != nil || RequestInfoFrom(t.Context()) != nil || DrainingFrom(t.Context()) != nil {
		t.Error("a context without a request has a user or a signal")
	}
}

// Decline works with writers of tests and other servers.
func TestDeclineElsewhere(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	w.Header().Set("X-Mine", "1")
	Decline(w)
	if w.Code != http.StatusNotFound || w.Header().Get("X-Catena-Decline") == "" || w.Header().Get("X-Mine") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
