package generation

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Claims that are none are left out and told once, not again and again.
func TestClaimsThatDoNotCount(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	g := &Generation{id: "g", spec: Spec{Grants: grants.All()}, opts: &Options{Log: hclog.New(&hclog.LoggerOptions{Output: &log})}}
	claims := []*stagev1.Claim{
		{Path: "/good", Match: stagev1.Claim_EXACT}, {Path: "bad", Match: stagev1.Claim_PREFIX},
		{Path: "/unknown", Match: 9}, {Path: "", Match: stagev1.Claim_EXACT}, nil,
	}
	for range 100 {
		if got := g.valid(claims); len(got) != 1 || got[0].GetPath() != "/good" {
			t.Fatalf("accepted %v", got)
		}
	}
	if got := log.String(); strings.Count(got, "do not count") != 1 || !strings.Contains(got, `a path begins with /`) {
		t.Errorf("log: %s", got)
	}
	for _, path := range []string{"/" + strings.Repeat("x", claim.MaxPath), strings.Repeat("/x", claim.MaxSegments+1)} {
		if got := g.valid([]*stagev1.Claim{{Path: path, Match: stagev1.Claim_EXACT}}); len(got) != 0 {
			t.Errorf("accepted a path of %d bytes and %d segments", len(path), strings.Count(path, "/"))
		}
	}
}

// A stage that serves goes on with its claims if it changes them to more than it can have. Signals of the same event count.
func TestTooManyClaims(t *testing.T) {
	t.Parallel()
	claims := func(n int, path string) []*stagev1.Claim {
		all := make([]*stagev1.Claim, n)
		for i := range all {
			all[i] = &stagev1.Claim{Path: path, Match: stagev1.Claim_EXACT}
		}
		return all
	}
	patterns := func(n int) []*stagev1.Claim {
		all := claims(n, "/*/x")
		for _, c := range all {
			c.Match = stagev1.Claim_EXACT_PATTERN
		}
		return all
	}
	for name, tc := range map[string]struct {
		claims []*stagev1.Claim
		want   string
	}{
		"as many as it can have": {claims(bounds.Claims, "/x"), ""},
		"too many":               {claims(bounds.Claims+1, "/x"), "it makes 100001 claims; a stage can have 100000"},
		"most segments":          {claims(bounds.Segments/32, strings.Repeat("/x", 32)), ""},
		"too many segments":      {claims(bounds.Segments/32+1, strings.Repeat("/x", 32)), "the paths of its claims have 100032 segments; those of a stage can have 100000"},
		"most patterns":          {patterns(bounds.Patterns), ""},
		"too many patterns":      {patterns(bounds.Patterns + 1), "257 of its claims have a wildcard before the end; 256"},
		"segments that are none": {[]*stagev1.Claim{{Path: strings.Repeat("/", bounds.Segments+1)}}, "100001 segments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			g := &Generation{id: "g", spec: Spec{Grants: grants.All()}, opts: &Options{Log: hclog.New(&hclog.LoggerOptions{Output: &log})}, pending: map[string]bool{"s": true}}
			g.setReport([]string{"/before"}, claims(1, "/before"))
			limits := 0
			for range 10 {
				c := g.event(&stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{Claims: tc.claims, ListedPaths: []string{"/after"}}, Signaled: []string{"s"}})
				limits += len(c.Limits)
			}
			refused := len(g.Report().Claims) == 1 && g.Report().Paths[0] == "/before"
			if refused != (tc.want != "") || !refused && len(g.Report().Claims) != len(tc.claims) || !g.Complete() {
				t.Errorf("%d claims count, complete %t", len(g.Report().Claims), g.Complete())
			}
			if lines := strings.Count(log.String(), "\n"); refused && (lines != 1 || limits != 1) || !strings.Contains(log.String(), tc.want) {
				t.Errorf("%d limits; log: %s", limits, log.String())
			}
			if err := CheckReport(&stagev1.PrepareRunResponse{Claims: tc.claims}); (err != nil) != refused || refused && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("while it is prepared: %v", err)
			}
		})
	}
}

// Claims that the stage is not granted do not count, now or later, and are told once.
func TestClaimsWithoutAGrant(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	g := &Generation{id: "g", opts: &Options{Log: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})}}
	for range 3 {
		g.setReport(nil, []*stagev1.Claim{
			{Path: "/mine", Match: stagev1.Claim_PREFIX}, {Path: "/", Match: stagev1.Claim_PREFIX}, {Path: "/apis/apps", Match: stagev1.Claim_CHILD},
		})
		if got := g.Report().Claims; len(got) != 1 || got[0].GetPath() != "/mine" {
			t.Errorf("claims %v", got)
		}
	}
	if got := log.String(); strings.Count(got, "not granted") != 1 || !strings.Contains(got, `"/** /apis/apps/*"`) {
		t.Errorf("log: %s", got)
	}
}

// A stage lists what it claims and what is above that, and no group version of which it has a part. What it is granted by name it may list
// without a claim.
func TestListedPaths(t *testing.T) {
	t.Parallel()
	granted := grants.Grants{Claims: []claim.Claim{claim.Prefix("/apis/apps/v1/scales"), claim.Prefix("/apis/batch")}}
	for name, tc := range map[string]struct {
		grants grants.Grants
		claims []claim.Claim
		list   string
		want   string
	}{
		"its own":                 {grants.Grants{}, []claim.Claim{claim.Prefix("/mine"), claim.Exact("/one")}, "/mine /mine/a /one /one/a /other /", "/mine /mine/a /one /"},
		"an API":                  {grants.Grants{}, []claim.Claim{claim.Prefix("/apis/a.io")}, "/apis /apis/ /apis/a.io /apis/a.io/v1 /apis/b.io /apis/b.io/v1 /openapi/v2", "/apis /apis/ /apis/a.io /apis/a.io/v1"},
		"Kubernetes'":             {grants.Grants{}, []claim.Claim{claim.Prefix("/"), claim.Prefix("/apis/apps")}, "/apis /apis/apps /apis/apps/v1 /api /api/v1 /x", ""},
		"a part of a version":     {granted, []claim.Claim{claim.Prefix("/apis/apps/v1/scales")}, "/apis/apps /apis/apps/v1 /apis/apps/v1/ /apis/apps/v1/scales", "/apis/apps /apis/apps/v1/scales"},
		"the page of a version":   {grants.Grants{}, []claim.Claim{claim.Exact("/apis/a.io/v1")}, "/apis/a.io/v1", ""},
		"granted and not claimed": {granted, nil, "/apis/batch /apis/batch/v1", "/apis/batch /apis/batch/v1"},
		"everything":              {grants.All(), []claim.Claim{claim.Exact("/apis")}, "/apis /apis/a.io/v1 /api/v1", "/apis /apis/a.io/v1 /api/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			g := &Generation{id: "g", spec: Spec{Grants: tc.grants}, opts: &Options{Log: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})}}
			for range 3 {
				g.setReport(strings.Fields(tc.list), stagev1.EncodeClaims(tc.claims))
				if got := strings.Join(g.Report().Paths, " "); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			}
			if n := strings.Count(log.String(), "does not claim"); (n == 1) != (tc.list != tc.want) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// A claim of what the host serves itself is logged: each path once, however often it
// changes its claims.
func TestShadowedClaims(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	g := &Generation{id: "g", spec: Spec{Grants: grants.All()}, opts: &Options{
		HostPaths: func() []string { return []string{"/", "/healthz", "/metrics", "/debug/pprof/", "/index.html"} },
		Log:       hclog.New(&hclog.LoggerOptions{Output: &log}),
	}}
	exact := func(path string) *stagev1.Claim { return &stagev1.Claim{Path: path, Match: stagev1.Claim_EXACT} }
	below := func(path string) *stagev1.Claim { return &stagev1.Claim{Path: path, Match: stagev1.Claim_PREFIX} }
	for _, step := range []struct {
		claims []*stagev1.Claim
		want   string // the paths in the log, in its latest line
	}{
		{nil, ""},
		{[]*stagev1.Claim{below("/"), exact("/a"), below("/healthzz"), exact("/indexes"), below("/debug")}, ""},
		{[]*stagev1.Claim{{Path: "/", Match: stagev1.Claim_CHILD}, {Path: "/metrics", Match: stagev1.Claim_CHILD}}, ""},
		{[]*stagev1.Claim{below("/healthz"), exact("/"), exact("/a")}, `paths="/healthz /"`},
		{[]*stagev1.Claim{exact("/healthz"), exact("/debug/pprof/heap")}, "paths=/debug/pprof/heap"},
		{[]*stagev1.Claim{exact("/debug/pprof/heap"), exact("/")}, ""},
	} {
		before := log.String()
		g.setReport(nil, step.claims)
		got := strings.TrimPrefix(log.String(), before)
		if step.want == "" && got != "" || strings.Count(got, "\n") > 1 || !strings.Contains(got, step.want) {
			t.Errorf("%v: the log says %q, want %q", step.claims, got, step.want)
		}
		if len(g.Report().Claims) != len(step.claims) {
			t.Errorf("%v: %v count", step.claims, g.Report().Claims)
		}
	}
	for i := range 10 * bounds.Shadowed {
		g.setReport(nil, []*stagev1.Claim{exact(fmt.Sprintf("/debug/pprof/%d", i))})
	}
	if n := strings.Count(log.String(), "\n"); n > bounds.Shadowed {
		t.Errorf("%d lines", n)
	}
}

// A log that is not read does not keep others from the report of a stage.
func TestReportWhileTheLogIsSlow(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]*stagev1.Claim{
		"claim that does not count": {Path: "bad"}, "shadowed claim": {Path: "/metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w := io.Pipe()
			g := &Generation{id: "g", spec: Spec{Grants: grants.All()}, opts: &Options{
				HostPaths: func() []string { return []string{"/metrics"} },
				Log:       hclog.New(&hclog.LoggerOptions{Output: w}),
			}}
			set := make(chan struct{})
			go func() {
				defer close(set)
				g.setReport([]string{"/listed"}, []*stagev1.Claim{claim})
			}()
			if _, err := r.Read(make([]byte, 1)); err != nil { // it is logging
				t.Fatal(err)
			}
			reported := make(chan Report, 1)
			go func() { reported <- g.Report() }()
			select {
			case <-reported:
			case <-time.After(patience):
				t.Error("Report waits for the log")
			}
			go func() { _, _ = io.Copy(io.Discard, r) }()
			<-set
			if got := g.Report().Paths; len(got) != 1 || got[0] != "/listed" {
				t.Errorf("listed paths are %q", got)
			}
		})
	}
}
