package system

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// The tests of this file and of carriers_audit_test.go are one for each line of
// docs/design/0004-what-rides-on-the-context.md: they fail if what that line describes does not cross the boundary.

// Who makes a request reaches the stages as it is, whatever characters it has.
func TestCarriedUser(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	letAsk(t, l)
	const extra = "Impersonate-Extra-Example.com%2fodd%20%25key"
	want := sdk.User{
		Name: `zoë "the \ one" 😀`, UID: "u:1%2f", Groups: []string{"a, b", "c;d=é", "system:authenticated"},
		Extra: map[string][]string{
			"example.com/odd %key": {`{"json": "\u0041"}`, "ünï 😀", "two  spaces", ""},
			"plain":                {"1", "2"},
		},
	}
	headers := http.Header{
		"Impersonate-User": {want.Name}, "Impersonate-Uid": {want.UID}, "Impersonate-Group": want.Groups[:2],
		extra: want.Extra["example.com/odd %key"], "Impersonate-Extra-Plain": want.Extra["plain"],
	}
	for _, path := range []string{"/stage/front", "/stage/middle", "/stage/behind"} {
		got := doWith(t, l.Config(cluster.Admin), http.MethodGet, path, "", headers).seen(t).User
		if !sameUser(got, want) {
			t.Errorf("%s sees %+v\nwant %+v", path, got, want)
		}
	}
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	a := doWith(t, l.Config(cluster.Admin), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, headers)
	var reviewed struct {
		Status struct {
			UserInfo struct {
				Username, UID string
				Groups        []string
				Extra         map[string][]string
			}
		}
	}
	if err := json.Unmarshal([]byte(a.body), &reviewed); err != nil {
		t.Fatal(err)
	}
	u := reviewed.Status.UserInfo
	if !sameUser(&sdk.User{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: u.Extra}, want) {
		t.Errorf("core sees %+v\nwant %+v", u, want)
	}
}

func sameUser(got *sdk.User, want sdk.User) bool {
	return got != nil && got.Name == want.Name && got.UID == want.UID && slices.Equal(got.Groups, want.Groups) &&
		maps.EqualFunc(got.Extra, want.Extra, slices.Equal)
}

// A stage knows the time that is left for a request, and is told when it is up.
func TestCarriedDeadline(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	admin := l.Config(cluster.Admin)
	for i, wrap := range []string{"none", "front,middle"} {
		s := do(t, admin, http.MethodGet, "/stage/behind?timeout=50s", "", wrapHeader+": "+wrap).seen(t)
		if s.Left <= 0 || s.Left > 50*time.Second {
			t.Errorf("wrapped by %s: %s left of 50 s", wrap, s.Left)
		}
		began := time.Now()
		a := do(t, admin, http.MethodGet, "/stage/behind/wait?timeout=3s&id=late-"+itoa(i), "", wrapHeader+": "+wrap)
		if took := time.Since(began); a.code != http.StatusGatewayTimeout || took >= time.Minute { // what the server gives each
			t.Errorf("wrapped by %s: %d after %s, want 504 after three seconds", wrap, a.code, took)
		}
		l.waited(t, "late-"+itoa(i))
	}
}

// A stage is told when a client has gone away.
func TestCarriedCancellation(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	for i, wrap := range []string{"none", "front,middle"} {
		id := "gone-" + itoa(i)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"/stage/behind/wait?id="+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wrapHeader, wrap)
		client, gone := httpClient(t, l.Config(cluster.Admin)), make(chan error, 1)
		go func() {
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			gone <- err
		}()
		eventually(t, "the stage has the request "+id, func() bool { return l.logged("waits: ", "id="+id) })
		cancel()
		if err := <-gone; err == nil {
			t.Error("a request that waits has been answered")
		}
		l.waited(t, id)
	}
}

// waited checks that a waiting stage has been told to end.
func (l *long) waited(t *testing.T, id string) {
	t.Helper()
	eventually(t, "the stage is told to end the request "+id, func() bool { return l.logged("told to end: ", "id="+id, "context ") })
}

// logged reports whether a line of the log has all of the texts.
func (l *long) logged(texts ...string) bool {
	for line := range strings.Lines(cluster.Tail(l.Process().Log, 10_000)) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return true
		}
	}
	return false
}

// The request has one audit id, and one time at which it was received.
func TestCarriedAuditIDAndTime(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	began := time.Now()
	for _, headers := range [][]string{nil, {"Audit-ID: the-client's-own"}} {
		for _, wrap := range []string{"none", "front,middle"} {
			a := do(t, l.Config(cluster.Admin), http.MethodGet, "/stage/behind", "", append(headers, wrapHeader+": "+wrap)...)
			s := a.seen(t)
			if ids := s.Header.Values("Audit-Id"); len(ids) != 1 || ids[0] == "" || ids[0] != a.header.Get("Audit-Id") {
				t.Errorf("wrapped by %s: the stage sees %q, the client %q", wrap, ids, a.header.Get("Audit-Id"))
			}
			micros, err := strconv.ParseInt(s.Header.Get(stagev1.HeaderReceived), 10, 64)
			if received := time.UnixMicro(micros); err != nil || received.Before(began.Add(-time.Second)) || received.After(time.Now()) {
				t.Errorf("wrapped by %s: received at %v", wrap, received)
			}
		}
	}
}

// Spans of host and stages are one trace, and only clients that kube-apiserver trusts choose it.
func TestCarriedTrace(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	letAsk(t, l)
	const id, parent = "0123456789abcdef0123456789abcdef", "00f067aa0ba902b7"
	header := "Traceparent: 00-" + id + "-" + parent + "-01"
	s := do(t, l.Config(cluster.Admin), http.MethodGet, "/stage/front", "", header).seen(t)
	if got := s.Header.Get("Traceparent"); !strings.HasPrefix(got, "00-"+id+"-") || strings.Contains(got, parent) || !strings.HasSuffix(got, "-01") {
		t.Errorf("the stage sees %q, want a span of the host in the client's trace", got)
	}
	s = do(t, l.Config(cluster.Bob), http.MethodGet, "/stage/front", "", header).seen(t)
	if got := s.Header.Get("Traceparent"); strings.Contains(got, id) {
		t.Errorf("bob's own trace reaches a stage: %q", got)
	}

	const id2 = "fedcba9876543210fedcba9876543210"
	do(t, l.Config(cluster.Admin), http.MethodGet, "/api/v1/namespaces/default", "", "Traceparent: 00-"+id2+"-"+parent+"-01")
	raw, _ := hex.DecodeString(id2)
	root, _ := hex.DecodeString(parent)
	eventually(t, "core's span is below the host's", func() bool {
		spans := l.spans.trace(raw)
		for _, s := range spans {
			if s.GetKind() == tracev1.Span_SPAN_KIND_SERVER && s.GetName() != "etcdserverpb.KV/Range" && serversAbove(spans, s, root) == 1 {
				return true
			}
		}
		return false
	})
}

// serversAbove counts the servers' spans between a span and the root of its trace; -1
// if a span between them is missing.
func serversAbove(spans []*tracev1.Span, s *tracev1.Span, root []byte) int {
	n := 0
	for !slices.Equal(s.GetParentSpanId(), root) {
		i := slices.IndexFunc(spans, func(p *tracev1.Span) bool { return slices.Equal(p.GetSpanId(), s.GetParentSpanId()) })
		if i < 0 {
			return -1
		}
		if s = spans[i]; s.GetKind() == tracev1.Span_SPAN_KIND_SERVER {
			n++
		}
	}
	return n
}

// Warnings that a stage has for the client arrive, as kube-apiserver's do.
func TestCarriedWarnings(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	reference, err := kubeAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	const unknown = `{"metadata": {"name": "a"}, "colour": "red", "data": {"a": "b"}, "data": {"a": "ü"}}`
	for _, r := range []struct{ method, path, body string }{
		{http.MethodGet, "/api/v1/componentstatuses/none", ""},
		{http.MethodGet, "/api/v1/namespaces/default/endpoints", ""},
		{http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All&fieldValidation=Warn", unknown},
		{http.MethodPost, "/apis/apps/v1/namespaces/default/deployments?dryRun=All", `{"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
			"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A"}, {"name": "A"}]}]}}}}`},
	} {
		want := do(t, reference.Config(cluster.Admin), r.method, r.path, r.body).header.Values("Warning")
		got := do(t, l.Config(cluster.Admin), r.method, r.path, r.body).header.Values("Warning")
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s %s: warnings %q, kube-apiserver has %q", r.method, r.path, got, want)
		}
	}
	flunder := `{"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": "w"}, "colour": "red"}`
	got := do(t, l.Config(cluster.Admin), http.MethodPost, "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders?dryRun=All", flunder).header.Values("Warning")
	if text := strings.Join(got, "\n"); !strings.Contains(text, "Flunder is deprecated") || !strings.Contains(text, `unknown field \"colour\"`) {
		t.Errorf("a third party's warnings are %q", got)
	}
}

// "Not found" is said when all stages know all of their paths, and not before.
func TestCarriedCompleteness(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	complete := filepath.Join(dir, "complete")
	c := catena(t, cluster.Options{
		ConfigFile: helloConfig(t), PluginDirs: []string{plugins(t, "hello")},
		Flags: map[string]string{"authorization-mode": "AlwaysAllow"}, Set: []string{"stages.hello.config.complete=" + complete, "stages.hello.grants.files=" + dir},
	})
	admin := c.Config(cluster.Admin)
	a := do(t, admin, http.MethodGet, "/apis/example.com/v1/things", "")
	if a.code != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("an incomplete stage: %d, Retry-After %q, want 503 with one", a.code, a.header.Get("Retry-After"))
	}
	if err := os.WriteFile(complete, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "404", func() bool {
		return do(t, admin, http.MethodGet, "/apis/example.com/v1/things", "").code == http.StatusNotFound
	})
}
