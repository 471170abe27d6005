package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Claims that are none are left out and told once, not again and again.
func TestClaimsThatDoNotCount(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	g := &generation{id: "g", stage: &stage{log: hclog.New(&hclog.LoggerOptions{Output: &log})}}
	claims := []*stagev1.Claim{
		{Path: "/good", Match: stagev1.Claim_EXACT}, {Path: "bad", Match: stagev1.Claim_PREFIX},
		{Path: "/unknown", Match: 9}, {Path: "", Match: stagev1.Claim_EXACT}, nil,
	}
	for range 100 {
		if got := g.accept(claims); len(got) != 1 || got[0].GetPath() != "/good" {
			t.Fatalf("accepted %v", got)
		}
	}
	if got := log.String(); strings.Count(got, "do not count") != 1 || !strings.Contains(got, `a path begins with /`) {
		t.Errorf("log: %s", got)
	}
	if got := g.accept(make([]*stagev1.Claim, 1<<20)); len(got) != 0 {
		t.Errorf("accepted %d empty claims", len(got))
	}
	many := make([]*stagev1.Claim, maxClaims+10)
	for i := range many {
		many[i] = &stagev1.Claim{Path: "/x", Match: stagev1.Claim_EXACT}
	}
	if got := g.accept(many); len(got) != maxClaims || !strings.Contains(log.String(), "more than a stage can have") {
		t.Errorf("accepted %d claims; log: %s", len(got), log.String())
	}
}

func TestPacer(t *testing.T) {
	t.Parallel()
	var p pacer
	now := time.Now()
	step := func(after time.Duration, wantWait time.Duration, wantOK bool) {
		t.Helper()
		now = now.Add(after)
		if wait, ok := p.wait(now); ok != wantOK || ok && max(wait, 0) != wantWait {
			t.Errorf("wait %s, %t; want %s, %t", wait, ok, wantWait, wantOK)
		}
	}
	step(0, 0, true)                             // at once
	step(publishPause/4, publishPause*3/4, true) // later
	step(publishPause/4, 0, false)               // which does for this, too
	now = now.Add(publishPause / 2)
	p.fire(now)
	step(publishPause/2, publishPause/2, true)
	now = now.Add(publishPause / 2)
	p.fire(now)
	step(time.Hour, 0, true)
	step(time.Hour, 0, true)
}
