package system

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The order comes from what the stages delegate to, whatever the order of the lines.
func TestOrderOfTheFileSaysNothing(t *testing.T) {
	t.Parallel()
	head, stages, _ := strings.Cut(longChain, "stages:\n")
	lines := strings.SplitAfter(strings.TrimSuffix(stages, "\n"), "\n")
	want := []string{"front", "aggregator", "middle", "core", "wardle", "extensions", "behind"}
	for range len(lines) {
		lines = append(lines[1:], strings.TrimSuffix(lines[0], "\n")+"\n")
		file := write(t, "catena.yaml", head+"stages:\n"+strings.Join(lines, "\n"))
		r := runCatena(t, "chain", "--config", file, "-o", "json")
		var links []struct{ Name string }
		if err := json.Unmarshal([]byte(r.stdout), &links); err != nil {
			t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
		}
		var got []string
		for _, l := range links {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order is %q, want %q", got, want)
		}
	}
}

// A stage serves its own paths at any place in the chain, and leaves others alone.
func TestStagesInFrontBetweenAndBehind(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	admin := l.Config(cluster.Admin)
	for _, name := range []string{"front", "middle", "behind"} {
		if s := do(t, admin, http.MethodPost, "/stage/"+name, strings.Repeat("x", 100_000)).seen(t); s.Stage != name || s.BodyBytes != 100_000 {
			t.Errorf("%s answers %+v", name, s)
		}
	}
	for path, want := range map[string]int{
		"/api/v1/namespaces/default": 200,
		"/apis/apps/v1":              200,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": 200,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps":     200,
		"/openid/v1/jwks":                    200,
		"/api/v1/namespaces/nobody":          404,
		"/apis/nobody.example.com/v1/things": 404,
		"/nowhere":                           404,
		"/stage":                             404,
		"/apis/wardle.example.com/v1alpha1/namespaces/a/flunders":  200,
		"/apis/wardle.example.com/v1alpha1/namespaces/a/flounders": 404,
	} {
		if a := do(t, admin, http.MethodGet, path, ""); a.code != want {
			t.Errorf("%s: %d, want %d: %.200s", path, a.code, want, a.body)
		}
	}
	if a := do(t, admin, http.MethodGet, "/nowhere", ""); a.body != "404 page not found\n" {
		t.Errorf("the end of the chain answers %q", a.body)
	}
}

// A stage may add to the responses of the stages downstream.
func TestWrappedAnswers(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	admin := l.Config(cluster.Admin)
	const path = "/api/v1/namespaces/default"
	plain := do(t, admin, http.MethodGet, path, "")
	for wrap, want := range map[string][]string{
		"front": {"front"}, "middle": {"middle"}, "front,middle": {"middle", "front"},
	} {
		id := auditID("wrap-" + wrap)
		a := do(t, admin, http.MethodGet, path, "", wrapHeader+": "+wrap, "Audit-ID: "+id)
		if a.code != 200 || a.body != plain.body || !slices.Equal(a.header.Values(wrappedHeader), want) {
			t.Errorf("wrapped by %s: %d, %q, %.200s", wrap, a.code, a.header.Values(wrappedHeader), a.body)
		}
		if e := l.audited().auditEvent(t, id); kind(e.ResponseObject) != "Namespace" {
			t.Errorf("wrapped by %s: audit event is %+v", wrap, e)
		}
	}

	// The stages downstream see the request as the client has sent it.
	big := strings.Repeat("y", 300_000)
	a := do(t, l.Config(cluster.Alice), http.MethodGet, "/nowhere", big, wrapHeader+": front,middle")
	if a.code != http.StatusForbidden {
		t.Errorf("alice: %d, want the authorizer's answer", a.code)
	}
	a = do(t, admin, http.MethodPut, "/stage/behind?a=b%2Fc", big, wrapHeader+": front,middle", "X-Odd: ü")
	s := a.seen(t)
	if s.Stage != "behind" || s.Method != http.MethodPut || s.URI != "/stage/behind?a=b%2Fc" || s.BodyBytes != int64(len(big)) ||
		s.User == nil || s.User.Name != cluster.Admin || s.Header.Get("X-Odd") != "ü" || len(a.header.Values(wrappedHeader)) != 2 {
		t.Errorf("behind has seen %+v", s)
	}
	if s.Left < 30*time.Second || s.Left > time.Minute {
		t.Errorf("behind has %s left", s.Left)
	}
	missing := do(t, admin, http.MethodGet, "/nowhere", "", wrapHeader+": front,middle")
	if missing.code != 404 || len(missing.header.Values(wrappedHeader)) != 2 {
		t.Errorf("the end of the chain, wrapped: %d %q", missing.code, missing.header)
	}
}

// The events of a watch pass a wrapping stage one by one.
func TestWrappedWatch(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	admin := l.Config(cluster.Admin)
	const maps = "/api/v1/namespaces/default/configmaps"
	resp := send(t, admin, http.MethodGet, maps+"?watch=1&fieldSelector=metadata.name%3Dwrapped", "", headerOf([]string{wrapHeader + ": front,middle"}))
	defer resp.Body.Close()
	if got := resp.Header.Values(wrappedHeader); resp.StatusCode != 200 || len(got) != 2 {
		t.Fatalf("%s, wrapped by %q", resp.Status, got)
	}
	events := make(chan string, 10)
	go func() {
		defer close(events)
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			var e struct{ Type string }
			_ = json.Unmarshal(in.Bytes(), &e)
			events <- e.Type
		}
	}()
	for _, step := range []struct{ method, path, body, event string }{
		{http.MethodPost, maps, `{"metadata": {"name": "wrapped"}}`, "ADDED"},
		{http.MethodPut, maps + "/wrapped", `{"metadata": {"name": "wrapped"}, "data": {"a": "b"}}`, "MODIFIED"},
		{http.MethodDelete, maps + "/wrapped", "", "DELETED"},
	} {
		if a := do(t, admin, step.method, step.path, step.body, wrapHeader+": middle"); a.code >= 300 {
			t.Fatalf("%s: %d %s", step.method, a.code, a.body)
		}
		select {
		case got := <-events:
			if got != step.event {
				t.Errorf("event %q, want %q", got, step.event)
			}
		case <-time.After(patience):
			t.Fatalf("no event %s: the stream is held back", step.event)
		}
	}
}

// A switch of protocols passes stages that wrap it.
func TestWrappedUpgrade(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	for _, wrap := range []string{"none", "front", "middle", "front,middle"} {
		conn := dial(t, l.Server)
		conn.send("GET " + execOf("behind") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n" +
			"Connection: Upgrade\r\nUpgrade: shout\r\n" + wrapHeader + ": " + wrap + "\r\n\r\n")
		resp := conn.response("GET")
		want := 0
		if wrap != "none" {
			want = strings.Count(wrap, ",") + 1
		}
		if resp.StatusCode != http.StatusSwitchingProtocols || len(resp.Header.Values(wrappedHeader)) != want {
			t.Fatalf("wrapped by %s: %s %v", wrap, resp.Status, resp.Header)
		}
		for _, word := range []string{"one\n", "two\n"} {
			conn.send(word)
			if got := conn.line(); got != strings.ToUpper(word) {
				t.Errorf("wrapped by %s: %q comes back as %q", wrap, word, got)
			}
		}
	}
}

// A chain of one third-party stage.
func TestChainOfOneThirdPartyStage(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		ConfigFile: helloConfig(t), PluginDirs: []string{plugins(t, "hello")},
		Flags: map[string]string{"authorization-mode": "AlwaysAllow"},
	})
	alice := c.Config(cluster.Alice)
	if s := do(t, alice, http.MethodGet, "/stage/hello", "").seen(t); s.User == nil || s.User.Name != cluster.Alice || !slices.Contains(s.User.Groups, "devs") {
		t.Errorf("hello has seen %+v", s)
	}
	for path, want := range map[string]int{"/api": 404, "/apis": 404, "/api/v1/pods": 404, "/": 200, "/version": 200, "/livez": 200} {
		if a := do(t, alice, http.MethodGet, path, ""); a.code != want {
			t.Errorf("%s: %d, want %d", path, a.code, want)
		}
	}
	if a := do(t, alice, http.MethodGet, "/", ""); !strings.Contains(a.body, `"/stage/hello"`) {
		t.Errorf("the index is %s", a.body)
	}
}
