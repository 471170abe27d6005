package generation

import (
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func TestSizesOfOtherGroupsDoNotCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claims   []claim.Claim
		resource string
		want     bool
	}{
		{[]claim.Claim{claim.Prefix("/apis/example.com/v1")}, "things.example.com", true},
		{[]claim.Claim{claim.Prefix("/apis/example.com/v1")}, "things.other.com", false},
		{[]claim.Claim{claim.Prefix("/apis/example.com/v1")}, "things.com", false},
		{[]claim.Claim{claim.Prefix("/apis/example.com/v1")}, "pods", false},
		{[]claim.Claim{claim.Prefix("/apis/example.community")}, "things.example.com", false},
		{[]claim.Claim{claim.Prefix("/api/v1")}, "pods", true},
		{[]claim.Claim{claim.Prefix("/api/v1")}, "deployments.apps", false},
		{[]claim.Claim{claim.Prefix("/apis")}, "deployments.apps", true},
		{[]claim.Claim{claim.Prefix("/apis/")}, "deployments.apps", true},
		{[]claim.Claim{claim.Child("/apis")}, "deployments.apps", true},
		{[]claim.Claim{claim.Child("/apis/")}, "deployments.apps", true},
		{[]claim.Claim{claim.Exact("/apis")}, "deployments.apps", false},
		{[]claim.Claim{claim.Exact("/apis/")}, "deployments.apps", false},
		{[]claim.Claim{claim.Prefix("/apis")}, "pods", false},
		{[]claim.Claim{claim.Exact("/apis/apps")}, "deployments.apps", true},
		{[]claim.Claim{claim.Exact("/apis/apps/")}, "deployments.apps", true},
		{[]claim.Claim{claim.Child("/")}, "deployments.apps", false},
		{[]claim.Claim{claim.Child("/")}, "pods", true},
		{[]claim.Claim{claim.Child("/api")}, "pods", true},
		{[]claim.Claim{claim.Exact("/api/v1/x")}, "pods", true},
		{[]claim.Claim{claim.Exact("/apix")}, "pods", false},
		{[]claim.Claim{claim.Prefix("/")}, "pods", true},
		{[]claim.Claim{claim.Prefix("/")}, "things.example.com", true},
		{nil, "pods", false},
	} {
		g := &Generation{opts: &Options{Log: hclog.NewNullLogger()}, report: Report{Claims: stagev1.EncodeClaims(c.claims)}}
		good, _ := g.validSizes([]*stagev1.ResourceSize{{Resource: c.resource}})
		if got := len(good) == 1; got != c.want {
			t.Errorf("with claims %v, %s counts: %t", claim.Texts(c.claims), c.resource, got)
		}
	}
}

func TestSizesAreCapped(t *testing.T) {
	t.Parallel()
	g := &Generation{opts: &Options{Log: hclog.NewNullLogger()}, report: Report{Claims: stagev1.EncodeClaims([]claim.Claim{claim.Prefix("/")})}}
	report := func(from, to int) (good int, full bool) {
		var all []*stagev1.ResourceSize
		for i := from; i < to; i++ {
			all = append(all, &stagev1.ResourceSize{Resource: fmt.Sprintf("r%d.example.com", i)})
		}
		valid, full := g.validSizes(all)
		return len(valid), full
	}
	for i, c := range []struct {
		from, to, good int
		full           bool
	}{{0, bounds.ResourceSizes - 1, bounds.ResourceSizes - 1, false}, {bounds.ResourceSizes - 2, bounds.ResourceSizes + 1, 2, true}, {bounds.ResourceSizes, bounds.ResourceSizes + 5, 0, false}, {0, 10, 10, false}} {
		if good, full := report(c.from, c.to); good != c.good || full != c.full {
			t.Errorf("report %d: %d count, full %t, want %d, %t", i, good, full, c.good, c.full)
		}
	}
}
