package front_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
)

// abac is a line of a policy that lets a user get a path.
func abac(user, path string) string {
	return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"` + user +
		`","readonly":true,"nonResourcePath":"` + path + `"}}` + "\n"
}

// getAs makes a request with an identity that the host has authenticated.
func (s *server) getAs(user string, groups []string, path string) response {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r.WithContext(front.WithLoopbackUser(r.Context(), user, groups)))
	return response{code: w.Code, header: w.Header(), body: w.Body.String()}
}

// The cause is for operators; everyone may know which stage is down.
func TestStageErrors(t *testing.T) {
	t.Parallel()
	failure := errors.New("connection refused")
	kinds := map[string]relay.StageError{
		"/unavailable": {Kind: relay.Unavailable, Stage: "core", Err: failure},
		"/lost":        {Kind: relay.Lost, Stage: "core", Err: failure},
		"/twice":       {Kind: relay.LostTwice, Stage: "core", Err: failure},
		"/bad":         {Kind: relay.BadResponse, Stage: "core", Err: failure},
		"/canceled":    {Kind: relay.Canceled, Stage: "core", Err: failure},
		"/request":     {Kind: relay.BadRequest, Stage: "core", Err: failure},
		"/large":       {Kind: relay.BadRequest, Stage: "core", Err: &http.MaxBytesError{Limit: 1}},
	}
	// Anonymous and joe may ask for all of it, but are no operators; jane is.
	policy := abac("jane", front.ChainPath)
	for path := range kinds {
		policy += abac("jane", path) + abac("joe", path)
	}
	var s *server
	flags := flagValues{"authorization-mode": {"ABAC"}, "authorization-policy-file": {writeFile(t, "policy.jsonl", policy)}}
	s = start(t, flags, func(w http.ResponseWriter, r *http.Request) {
		e := kinds[r.URL.Path]
		s.StageError(w, r, &e)
	})
	const busy = "the server is currently unable to handle the request: "
	for path, want := range map[string]struct {
		code                 int
		reason, retry        string
		toOperator, toOthers string
	}{
		"/unavailable": {503, "ServiceUnavailable", "1", busy + `stage "core" is not available: connection refused`, busy + `stage "core" is not available`},
		"/lost":        {500, "InternalError", "", `stage "core" ended the connection`, "there is no response to it"},
		"/twice":       {500, "InternalError", "", `stage "core" ended the connection without a response twice`, `stage "core" ended twice without a response to this request, which is not sent again`},
		"/bad":         {500, "InternalError", "", `stage "core" gave a malformed response`, "there is no response to it"},
		"/canceled":    {504, "Timeout", "", "did not complete", "within the allotted timeout"},
		"/request":     {400, "BadRequest", "", failure.Error(), failure.Error()},
		"/large":       {413, "RequestEntityTooLarge", "", "too large", "too large"},
	} {
		for who, a := range map[string]response{
			"admin": s.admin(t).get(t, path), "jane": s.getAs("jane", nil, path), "joe": s.getAs("joe", nil, path),
		} {
			reason, message := a.status(t)
			if a.code != want.code || reason != want.reason || a.header.Get("Retry-After") != want.retry {
				t.Errorf("%s as %s: %d %s, Retry-After %q, want %+v", path, who, a.code, reason, a.header.Get("Retry-After"), want)
			}
			if who != "joe" && !strings.Contains(message, want.toOperator) || who == "joe" && !strings.HasSuffix(message, want.toOthers) {
				t.Errorf("%s as %s: message is %q, want %+v", path, who, message, want)
			}
		}
	}
}

func TestTheChainIsForOperators(t *testing.T) {
	t.Parallel()
	flags := flagValues{"authorization-mode": {"ABAC"}, "authorization-policy-file": {writeFile(t, "policy.jsonl", abac("jane", "/*"))}}
	s := newServer(t, flags)
	s.HandleChain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	s.run(t)
	s.waitReady(t)
	for user, want := range map[string]int{"jane": http.StatusTeapot, "joe": http.StatusForbidden} {
		if a := s.getAs(user, nil, front.ChainPath); a.code != want {
			t.Errorf("%s: %d %s, want %d", user, a.code, a.body, want)
		}
	}
	if a := s.admin(t).get(t, "/"); strings.Contains(a.body, front.ChainPath) {
		t.Error("the index, which is to be kube-apiserver's, has the path")
	}
}
