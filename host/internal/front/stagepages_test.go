package front_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/front"
)

// Pages about stages are for those who may get them. Profiles may take as long as they like; nothing else may.
func TestStagePages(t *testing.T) {
	t.Parallel()
	flags := flagValues{
		"authorization-mode":        {"ABAC"},
		"authorization-policy-file": {writeFile(t, "policy.jsonl", abac("jane", front.StagePagesPath+"*"))},
	}
	s := newServer(t, flags)
	s.HandleStagePages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nothing") {
			s.PageError(w, r, http.StatusNotImplemented, "there is nothing")
			return
		}
		w.Header().Set("Content-Type", strings.TrimPrefix(r.URL.RawQuery, "type="))
		if _, limited := r.Context().Deadline(); limited {
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	s.run(t)
	s.waitReady(t)
	for path, want := range map[string]int{
		"core/pprof/profile": http.StatusOK,
		"core/pprof/heap":    http.StatusOK,
		"core/statusz":       http.StatusAccepted,
		"core/pprof":         http.StatusAccepted,
		"pprof/profile":      http.StatusAccepted,
	} {
		if a := s.getAs("jane", nil, front.StagePagesPath+path); a.code != want {
			t.Errorf("%s: %d %s, want %d", path, a.code, a.body, want)
		}
		if a := s.getAs("joe", nil, front.StagePagesPath+path); a.code != http.StatusForbidden {
			t.Errorf("%s as joe: %d %s", path, a.code, a.body)
		}
		if !s.Serves(front.StagePagesPath + path) {
			t.Errorf("%s is not the host's own", path)
		}
	}
	// Browsers execute nothing of them, whatever they are called.
	for _, page := range []string{"core/statusz?type=text/html", "core/x?type=image/svg+xml", "core/x?type=application/xhtml+xml", "core/x?type=text/xml", "core/x?type=", "core/nothing"} {
		header := s.getAs("jane", nil, front.StagePagesPath+page).header
		if header.Get("Content-Security-Policy") != "sandbox; default-src 'none'" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", page, header)
		}
	}
	a := s.getAs("jane", nil, front.StagePagesPath+"core/nothing")
	if _, message := a.status(t); a.code != http.StatusNotImplemented || message != "there is nothing" {
		t.Errorf("an error: %d %s", a.code, a.body)
	}
	if a := s.admin(t).get(t, "/"); strings.Contains(a.body, "catena") {
		t.Error("the index, which is to be kube-apiserver's, has the path")
	}
}
