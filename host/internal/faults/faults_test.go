package faults

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/claim"
)

// A certificate is news once, and again after it was renewed.
func TestCertificateIsNewsOnce(t *testing.T) {
	t.Parallel()
	h := &Host{}
	for i, c := range []struct{ soon, news bool }{{false, false}, {true, true}, {true, false}, {false, false}, {true, true}} {
		if got := h.Certificate(pki.Certificate{Flag: "tls-cert-file", File: "/a", Soon: c.soon}); (got != "") != c.news {
			t.Errorf("look %d: %q", i, got)
		}
	}
}

// Who waits for etcd does not say how to wait for longer.
func TestCause(t *testing.T) {
	t.Parallel()
	h, late := &Host{}, errors.New("no response within 10s; raise preShutdownTimeout")
	if err := h.Cause(late); !errors.Is(err, late) {
		t.Error(err)
	}
	h.StoreSilent(errors.New("refused"))
	if err := h.Cause(late); err == nil || err.Error() != "pre-shutdown hooks have not ended, since etcd does not respond: refused" {
		t.Error(err)
	}
	if err := h.Cause(nil); err != nil {
		t.Error(err)
	}
}

// Each cause has one line, what follows from it has none, and the gravest is the first.
func TestList(t *testing.T) {
	t.Parallel()
	core := supervisor.Status{Stage: "core", State: "serving", Required: true}
	checks := []Check{{"core/etcd", "context deadline exceeded"}, {"core/informers", "x"}, {"y", "z"}}
	for name, c := range map[string]struct {
		set    func(*Host)
		stages []supervisor.Status
		checks []Check
		want   []string
	}{
		"well":   {stages: []supervisor.Status{core}},
		"silent": {set: func(h *Host) { h.StoreSilent(errors.New("refused")) }, checks: checks, want: []string{"etcd does not respond: refused (for 1m0s)"}},
		"again":  {set: func(h *Host) { h.StoreSilent(errors.New("refused")); h.StoreSilent(nil) }},
		"nearly full": {set: func(h *Host) { h.StoreSize(90<<20, 100<<20) },
			want: []string{"the file of etcd has 90 MiB, 90% of the quota, at which it refuses writes: delete objects, and defragment an etcd of your own, or raise the quota (for 1m0s)"}},
		"full is not nearly full": {set: func(h *Host) { h.StoreSize(99<<20, 100<<20); h.StoreFull(true, "delete objects") }, want: []string{"etcd has reached its quota and refuses writes: delete objects (for 1m0s)"}},
		"no quota is known":       {set: func(h *Host) { h.StoreSize(99<<20, 0) }},
		"no limits": {set: func(h *Host) { h.NoLimits("too many open files") },
			want: []string{"limits of memory are not in force, since processes cannot be measured: too many open files (for 1m0s)"}},
		"void claims": {set: func(h *Host) { h.ClaimsVoid([]grants.Void{voidOf("core"), voidOf("gone"), voidOf("core")}) }, stages: []supervisor.Status{core},
			want: []string{"stage core claims what others have by name, and gets no request for that: " +
				"/a/** without a grant, where stage b has /a/c by name, /a/** without a grant, where stage b has /a/c by name (for 1m0s)"}},
		"claims count again": {set: func(h *Host) { h.ClaimsVoid([]grants.Void{voidOf("core")}); h.ClaimsVoid(nil) }, stages: []supervisor.Status{core}},
		"limits again":       {set: func(h *Host) { h.NoLimits("too many open files"); h.NoLimits("") }},
		"not ready":          {checks: checks, want: []string{"not ready: check core/etcd fails: context deadline exceeded; and 2 more"}},
		"down": {stages: []supervisor.Status{{Stage: "core", State: supervisor.Down, Required: true, Failures: 3, Failure: "it panics"}}, checks: checks,
			want: []string{"stage core is down after 3 failed starts: it panics"}},
		"optional and down": {stages: []supervisor.Status{{Stage: "gar", State: supervisor.Down, Failures: 1}}, checks: checks[:1],
			want: []string{"stage gar is down", "not ready: check core/etcd fails: context deadline exceeded"}},
		"held for long":      {stages: []supervisor.Status{{Stage: "core", State: "backing off", Required: true, Failures: 8}}, want: []string{"stage core is backing off after 8 failed starts"}},
		"held for a moment":  {stages: []supervisor.Status{{Stage: "core", State: "backing off", Required: true, Failures: 7}}},
		"it has come up":     {stages: []supervisor.Status{{Stage: "core", State: "serving", Required: true, Failures: 9}}},
		"of another release": {stages: []supervisor.Status{{Stage: "core", State: "serving", OtherRelease: "v1.37.0"}}, want: []string{"stage core was v1.37.0"}},
		"restarted by chance": {
			stages: []supervisor.Status{{Stage: "core", State: "serving", Restarts: 9, RecentRestarts: 3}},
		},
		"restarted often": {
			stages: []supervisor.Status{{Stage: "core", State: "serving", RecentRestarts: 4, Failure: "killed\noutput"}},
			want:   []string{"stage core was started again 4 times in a quarter of an hour: killed"},
		},
		"restarted by hand": {
			stages: []supervisor.Status{{Stage: "core", State: "serving", RecentRestarts: 9, Attached: true}},
		},
		"down, and restarted often": {
			stages: []supervisor.Status{{Stage: "core", State: supervisor.Down, RecentRestarts: 9}},
			want:   []string{"stage core is down"},
		},
		"certificates": {set: func(h *Host) {
			h.Certificate(pki.Certificate{Flag: "tls-cert-file", File: "/a", End: time.Now().Add(29 * 24 * time.Hour), Soon: true})
			h.Certificate(pki.Certificate{Flag: "client-ca-file", File: "/b", End: time.Now().Add(-time.Hour), Soon: true})
			h.Certificate(pki.Certificate{Flag: "etcd-cafile", File: "/c", End: time.Now().Add(24 * time.Hour)})
			h.StoreSilent(errors.New("refused"))
		}, want: []string{"etcd does not respond", "the certificate /b (client-ca-file) has ended on 1999-12-31", "the certificate /a (tls-cert-file) ends on 2000-01-30"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &Host{}
			if c.set != nil {
				c.set(h)
			}
			time.Sleep(time.Minute)
			var got []string
			for _, f := range h.List(c.stages, c.checks) {
				got = append(got, f.String())
			}
			if len(got) != len(c.want) {
				t.Fatalf("%s: %q, want %q", name, got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("%s: %q, want %q", name, got[i], c.want[i])
				}
			}
		})
	}
}

func voidOf(stage string) grants.Void {
	return grants.Void{Stage: stage, Claim: claim.Prefix("/a"), Of: "b", Name: claim.Exact("/a/c")}
}

// Claims that do not count are news when they are others.
func TestVoidClaimsAreNewsOnce(t *testing.T) {
	t.Parallel()
	h, a, b := &Host{}, voidOf("a"), voidOf("b")
	for i, c := range []struct {
		claims []grants.Void
		news   bool
	}{{nil, false}, {[]grants.Void{a}, true}, {[]grants.Void{a}, false}, {[]grants.Void{b}, true}, {[]grants.Void{a, b}, true}, {nil, true}, {nil, false}} {
		if got := h.ClaimsVoid(c.claims); got != c.news || len(h.VoidClaims()) != len(c.claims) {
			t.Errorf("step %d: %t %v", i, got, h.VoidClaims())
		}
	}
}
