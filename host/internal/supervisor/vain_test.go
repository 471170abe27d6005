package supervisor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// A stage that claims what the host answers is told so: each path once, however often it
// changes its claims.
func TestClaimsInVain(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	opts := &Options{HostPaths: func() []string { return []string{"/", "/healthz", "/metrics", "/debug/pprof/", "/index.html"} }}
	g := &generation{id: "g", stage: &stage{opts: opts, log: hclog.New(&hclog.LoggerOptions{Output: &log})}}
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
		if len(g.reported().claims) != len(step.claims) {
			t.Errorf("%v: %v count", step.claims, g.reported().claims)
		}
	}
	for i := range 10 * maxVain {
		g.setReport(nil, []*stagev1.Claim{exact(fmt.Sprintf("/debug/pprof/%d", i))})
	}
	if n := strings.Count(log.String(), "\n"); n > maxVain {
		t.Errorf("%d lines", n)
	}
}
