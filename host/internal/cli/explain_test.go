package cli

import (
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/claim"
)

func TestExplainGoesByTheClaimsOfTheLastRun(t *testing.T) {
	data := t.TempDir()
	if err := datadir.WriteClaims(data, map[string][]claim.Claim{"front": {claim.Exact("/apis")}, "core": {claim.Prefix("/"), claim.Prefix("/apis/apps")}}); err != nil {
		t.Fatal(err)
	}
	file := write(t, "")
	for path, want := range map[string][]string{
		"/apis":              {"front responds, or passes it on; then core responds, or passes it on; then 404."},
		"/apis/apps/v1?x=/y": {"core   1.     /apis/apps/**", "front  no     none covers the path", "GET /apis/apps/v1\n"},
		"/else":              {"core   1.     /**", "tail   no     none covers the path  not known: it has not run", "No host runs"},
	} {
		out, _, err := run(t, "explain", "get", path, "--config", file, "--data-dir", data)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", path, w, out)
			}
		}
	}
	for want, args := range map[string][]string{
		"must begin with /":                 {"GET", "api"},
		"--as-group needs --as":             {"GET", "/api", "--as-group", "x"},
		"known to a running host only":      {"GET", "/api", "--as", "jane"},
		"explain needs a method and a path": {"GET"},
		`"xml": this command prints te`:     {"GET", "/", "-o", "xml"},
	} {
		_, _, err := run(t, append([]string{"explain", "--config", file, "--data-dir", data}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestExplainWithoutHostAndConfiguration(t *testing.T) {
	data := t.TempDir()
	_, _, err := run(t, "explain", "GET", "/api", "--data-dir", data)
	if err == nil || !strings.Contains(err.Error(), "no host runs on the data directory "+data) {
		t.Errorf("got %v", err)
	}
}

func TestExplanationInWords(t *testing.T) {
	claims := func(name, path string) chain.StageClaims {
		return chain.StageClaims{Name: name, Claims: []claim.Claim{claim.Prefix(path)}}
	}
	counted := &admin.Explanation{Running: true, Path: "/x", Stages: []admin.ExplainStage{{Stage: "a", Outcomes: map[relay.Outcome]uint64{"served": 2, "called": 30, "declined": 2}}, {Stage: "b"}}}
	var out strings.Builder
	if err := printExplanation(&out, "text", counted); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"STATE  OUTCOMES\n", "-      called 30, declined 2, served 2\n", "-      -\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for want, e := range map[string]*admin.Explanation{
		"The host itself responds.":                                   {Host: true},
		"No stage claims the path: 404.":                              {},
		"503, since stage b does not know all of its paths":           {Incomplete: "b"},
		"Stage a is down: requests that come to it wait, or get 503.": {},
		`jane (in dev) may not get pods: no rule`:                     {Access: &admin.Access{User: "jane", Groups: []string{"dev"}, Request: "get pods", Reason: "no rule"}},
		`jane (in ) may get pods`:                                     {Access: &admin.Access{User: "jane", Request: "get pods", Allowed: true}},
	} {
		e.Path, e.Running = "/x", true
		if strings.Contains(want, "down") {
			e.Add(claims("a", "/x")).State = "down"
		}
		if got := strings.Join(e.Sentences(), "\n"); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
