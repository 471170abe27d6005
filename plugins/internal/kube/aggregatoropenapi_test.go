package kube

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/hashicorp/go-hclog"
)

func TestUntilPrepared(t *testing.T) {
	t.Parallel()
	var prepared atomic.Bool
	code := 0
	h := untilPrepared(&prepared, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"e"`)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "text")
	}))
	for _, step := range []struct {
		path       string
		prepared   bool
		code, want int
	}{
		{openAPIIndex, false, 200, 200},
		{openAPIIndex, false, 404, 503},
		{openAPIIndex, false, 500, 500},
		{openAPIIndex + "/apis/a", false, 404, 404},
		{openAPIv2, false, 404, 404},
		{openAPIIndex, true, 404, 404},
		{openAPIIndex, true, 200, 200},
	} {
		prepared.Store(step.prepared)
		code = step.code
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, step.path, nil))
		if w.Code != step.want || w.Code == step.code && (w.Body.String() != "text" || w.Header().Get("Etag") != `"e"`) {
			t.Errorf("%+v: got %d %q with %q", step, w.Code, w.Body, w.Header())
		}
	}
}

// Of the documents that each server has, a stage that is not core keeps none in its index; what is no index is passed on as it is.
func TestWithoutServerDocuments(t *testing.T) {
	t.Parallel()
	code, body := 0, ""
	h := withoutServerDocuments(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	const index = `{"paths":{"apis":{"serverRelativeURL":"/a"},"apis/x/v1":{"serverRelativeURL":"/x"},"version":{"serverRelativeURL":"/v"}}}`
	for _, step := range []struct {
		path, body string
		code       int
		want       string
	}{
		{openAPIIndex, index, 200, `{"paths":{"apis/x/v1":{"serverRelativeURL":"/x"}}}` + "\n"},
		{openAPIIndex, index, 503, index}, {openAPIIndex, "nonsense", 200, "nonsense"}, {openAPIIndex + "/version", index, 200, index},
	} {
		code, body = step.code, step.body
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, step.path, nil))
		if w.Code != step.code || w.Body.String() != step.want {
			t.Errorf("%+v: got %d %q", step, w.Code, w.Body)
		}
	}
}

func TestWithoutOpenAPI(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{openAPIv2: 200, openAPIIndex: 200, openAPIIndex + "/apis/a/v1": 404} {
		w := httptest.NewRecorder()
		withoutOpenAPI().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	paths, _, err := delegates.IndexOf(t.Context(), withoutOpenAPI())
	if err != nil || len(paths) != 0 {
		t.Errorf("index: %v, %v", paths, err)
	}
}

// A document that cannot be read is an empty one for Kubernetes, until there has been a
// better one. What is wrong is logged once.
func TestValidateOpenAPI(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	code, body := 0, ""
	s := &validateOpenAPI{log: hclog.New(&hclog.LoggerOptions{Output: &log}), next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"e"`)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})}
	for _, step := range []struct {
		path, body string
		code       int
		want       string
		warnings   int // so far
	}{
		{openAPIv2, "later", 503, "later", 0},
		{openAPIv2, "{\x00", 200, emptyOpenAPIv2, 1},
		{openAPIv2, "{\x00", 200, emptyOpenAPIv2, 1},
		{openAPIIndex, "{\x00", 200, "{\x00", 1},
		{openAPIv2, `{"paths":{}}`, 200, `{"paths":{}}`, 1},
		{openAPIv2, "", 304, "", 1},
		{openAPIv2, "{\x00", 200, "{\x00", 2},
		{openAPIv2, "{\x00", 200, "{\x00", 2},
	} {
		code, body = step.code, step.body
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, step.path, nil))
		if w.Code != step.code || w.Body.String() != step.want || (w.Header().Get("Etag") != "") != (step.want == step.body) {
			t.Errorf("%+v: got %d %q with %q", step, w.Code, w.Body, w.Header())
		}
		if n := strings.Count(log.String(), "OpenAPI document of a stage is malformed"); n != step.warnings {
			t.Errorf("%+v: %d warnings", step, n)
		}
	}
}

// A document of another release is merged as long as there has been none of the right one, and then no more.
func TestOpenAPIOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.37", ""} {
		code, body := 0, ""
		s := &validateOpenAPI{log: hclog.NewNullLogger(), version: version, next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})}
		for i, step := range []struct {
			code int
			body string
			want int
		}{
			{200, `{"info":{"version":"1.36"}}`, 200}, {200, `{"info":{"version":"1.37"}}`, 200}, {200, `{"info":{"version":"1.36"}}`, 503}, {304, "", 304},
			{200, `{"info":{"version":"1.37"}}`, 200}, {503, "", 503},
		} {
			if version == "" && step.code == 200 {
				step.want = 200
			}
			code, body = step.code, step.body
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, openAPIv2, nil))
			if w.Code != step.want || step.want == 200 && w.Body.String() != step.body {
				t.Errorf("version %q, step %d: got %d %q, want %d", version, i, w.Code, w.Body, step.want)
			}
		}
	}
}
