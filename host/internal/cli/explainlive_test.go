package cli

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk"
)

// toldApart are the handlers of stages that hand on in different ways, by their names;
// nil for other names.
func toldApart(name string, env *sdk.Env) http.Handler {
	switch name {
	case "declines", "calls", "calls-too":
		env.ClaimPrefix("/greeting")
	case "greets":
		env.Claim("/greeting")
	default:
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name {
		case "greets":
			_, _ = io.WriteString(w, "hello")
			return
		case "calls", "calls-too":
			w.Header().Set("X-By-"+name, "1")
		}
		env.Next.ServeHTTP(w, r)
	})
}

// startToldApart starts a host with a stage that declines, two that call and one that
// answers.
func startToldApart(t *testing.T) *life {
	t.Helper()
	l := newLife(t, "declines", "calls", "calls-too", "greets")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + l.plugins + "]\nlog: {format: json}\n" +
		"apiserver: {" + lifeFlags + ", authorization-mode: [RBAC]}\nstages:\n"
	for stage, delegate := range map[string]string{"declines": "calls", "calls": "calls-too", "calls-too": "greets", "greets": ""} {
		text += "  " + stage + ": {lock: off, env: {" + envStage + ": " + stage + "}, delegate: '" + delegate + "'}\n"
	}
	if err := os.WriteFile(l.config, []byte(strings.ReplaceAll(text, ", delegate: ''", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start(t)
	l.untilSignal(t, "HasBeenReady")
	return l
}

// Which stages decline and which call can be seen of a running host: in explanations, in
// the metric and in the trail of a request.
func TestDeclinesAndCallsAreToldApart(t *testing.T) {
	t.Parallel()
	l := startToldApart(t)
	client, server := l.admin(t)
	for range 2 {
		req, err := http.NewRequest(http.MethodGet, server+"/greeting", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Catena-Explain", "1")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		const want = "declines;outcome=declined, calls;outcome=called, calls-too;outcome=called, greets;outcome=served"
		trail := regexp.MustCompile(`;ms=[0-9.]+`).ReplaceAllString(resp.Header.Get("X-Catena-Trail"), "")
		if resp.StatusCode != http.StatusOK || resp.Header.Get("X-By-Calls") == "" || resp.Header.Get("X-By-Calls-Too") == "" || trail != want {
			t.Errorf("%s, the trail is %q, want %q", resp.Status, trail, want)
		}
	}
	if code, _ := l.get(t, "/greeting/else"); code != http.StatusNotFound {
		t.Errorf("/greeting/else: %d, want 404", code)
	}
	want := map[string]map[relay.Outcome]uint64{
		"declines": {relay.Declined: 3}, "calls": {relay.Called: 3}, "calls-too": {relay.Called: 3}, "greets": {relay.Served: 2},
	}
	l.until(t, "explanation with all requests", func() bool {
		out, err := l.command(t, "explain", "GET", "/greeting", "-o", "json")
		var e admin.Explanation
		if err != nil || json.Unmarshal([]byte(out), &e) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := map[string]map[relay.Outcome]uint64{}
		for _, st := range e.Stages {
			got[st.Stage] = st.Outcomes
		}
		return maps.EqualFunc(got, want, maps.Equal)
	})
	_, metrics := l.get(t, "/metrics")
	for _, line := range []string{`{outcome="declined",stage="declines"} 3`, `{outcome="called",stage="calls"} 3`, `{outcome="called",stage="calls-too"} 3`, `{outcome="served",stage="greets"} 2`} {
		if !strings.Contains(metrics, "\ncatena_relay_hops_total"+line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	testExplainsOfARunningHost(t, l)
}

// testExplainsOfARunningHost asks in all the ways that there are.
func testExplainsOfARunningHost(t *testing.T, l *life) {
	t.Helper()
	for _, c := range []struct {
		args string
		want []string
	}{
		{"get /greeting", []string{
			"GET /greeting\n", "STAGE      ASKED  CLAIM         STATE    OUTCOMES\n",
			"declines   1.     /greeting/**  serving  declined 3\n", "calls-too  3.     /greeting/**  serving  called 3\n",
			"greets     4.     /greeting     serving  served 2\n", "then greets responds, or passes it on; then 404.\n",
		}},
		{"GET /greeting/else", []string{"greets     no     none covers the path  serving  served 2\n"}},
		{"GET /healthz", []string{"The host itself responds."}},
		{"GET /nothing", []string{"No stage claims the path: 404."}},
		{"GET /greeting --as jane", []string{"jane (in system:authenticated) may not get /greeting"}},
		{"GET /greeting --as root --as-group system:masters", []string{"root (in system:masters, system:authenticated) may get /greeting"}},
		{"DELETE /api/v1/namespaces/a/pods/b?x=y --as jane --as-group dev", []string{"DELETE /api/v1/namespaces/a/pods/b\n", `jane (in dev, system:authenticated) may not delete pods "b" in namespace "a"`}},
	} {
		out, err := l.command(t, append([]string{"explain"}, strings.Fields(c.args)...)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, out)
			}
		}
	}
}

// An operator may switch the metric off. Explanations do without it then.
func TestExplainWithoutTheMetric(t *testing.T) {
	t.Parallel()
	l := startLife(t, "greeting: hello", "apiserver: {"+lifeFlags+", disabled-metrics: catena_relay_hops_total}")
	l.untilSignal(t, "HasBeenReady")
	if code, body := l.get(t, "/life"); code != http.StatusOK || body != "hello" {
		t.Errorf("%d %s", code, body)
	}
	out, err := l.command(t, "explain", "GET", "/life")
	if want := "life   1.     /life  serving  -\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v, no %q in\n%s\n%s", err, want, out, l.dump())
	}
}
