package server

import (
	"testing"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// The stage whose /version clients see is the one with the built-in resources, of those that say which release they are of.
func TestVersionStage(t *testing.T) {
	t.Parallel()
	stage := func(version, path string) supervisor.Published {
		return supervisor.Published{KubernetesVersion: version, Claims: stagev1.EncodeClaims([]claim.Claim{claim.Prefix(path)})}
	}
	for name, tc := range map[string]struct {
		stages []supervisor.Published
		want   int
	}{
		"none":        {nil, -1},
		"aggregator":  {[]supervisor.Published{stage("1.37", "/apis/apiregistration.k8s.io"), stage("1.36", "/api"), stage("1.37", "/apis/x")}, 1},
		"middleware":  {[]supervisor.Published{stage("", "/"), stage("1.36", "/api")}, 1},
		"third party": {[]supervisor.Published{stage("", "/api"), stage("1.37", "/apis/x")}, -1},
	} {
		if got := versionStage(grants.NewTable(claimants(tc.stages, claimsOf(tc.stages))), tc.stages); got != tc.want {
			t.Errorf("%s: stage %d, want %d", name, got, tc.want)
		}
	}
}

// Requests of the host bypass a stage that is not granted them where it needs a grant for its
// claim, and nowhere else: what is its own, or may be, is never another's, nor not found.
func TestSystemRequestsBypass(t *testing.T) {
	t.Parallel()
	everything, own := claim.Prefix("/"), claim.Prefix("/apis/example.com")
	for name, tc := range map[string]struct {
		head   supervisor.Published
		claims []claim.Claim
		differ bool
		want   map[string]int // the stage that gets a request of the host, 1 is core
	}{
		"middleware":        {supervisor.Published{}, []claim.Claim{everything, own}, true, map[string]int{"/api/v1/pods": 1, "/apis/example.com/v1": 0}},
		"granted":           {supervisor.Published{Grants: grants.Grants{SystemRequests: true}}, []claim.Claim{everything}, false, map[string]int{"/api/v1/pods": 0}},
		"its own alone":     {supervisor.Published{}, []claim.Claim{own}, false, map[string]int{"/apis/example.com/v1": 0, "/api/v1/pods": 1}},
		"absent, not known": {supervisor.Published{Absent: true}, []claim.Claim{everything}, false, map[string]int{"/apis/example.com/v1": 0, "/api/v1/pods": 1}},
		"absent, granted": {
			supervisor.Published{Absent: true, Grants: grants.Grants{Claims: []claim.Claim{everything}}}, []claim.Claim{everything}, true,
			map[string]int{"/apis/example.com/v1": 0, "/api/v1/pods": 1},
		},
		"absent, granted all": {supervisor.Published{Absent: true, Grants: grants.All()}, []claim.Claim{everything}, false, map[string]int{"/api/v1/pods": 0}},
	} {
		head := tc.head
		head.Claims = stagev1.EncodeClaims(tc.claims)
		stages := []supervisor.Published{head, {Grants: grants.All(), Claims: stagev1.EncodeClaims([]claim.Claim{everything})}}
		got := tables(stages, []chain.StageClaims{{Name: "head", Claims: tc.claims}, {Name: "core", Claims: []claim.Claim{everything}}})
		if (got.System != nil) != tc.differ {
			t.Errorf("%s: a table for the host's requests: %v, want %v", name, got.System != nil, tc.differ)
		}
		table := got.System
		if table == nil {
			table = got.All
		}
		for path, want := range tc.want {
			if first := table.First(path); first != want {
				t.Errorf("%s: %s goes to stage %d, want %d", name, path, first, want)
			}
			client := 0
			if name == "its own alone" || name == "absent, not known" {
				client = want
			}
			if first := got.All.First(path); first != client {
				t.Errorf("%s: %s of a client goes to stage %d, want %d", name, path, first, client)
			}
		}
	}
}
