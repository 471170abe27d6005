package datadir

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/sdk/claim"
)

func TestClaimsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := ReadClaims(dir); got != nil {
		t.Errorf("an empty directory has the claims %v", got)
	}
	want := map[string][]claim.Claim{
		"aggregator": {claim.Prefix("/")},
		"core":       {claim.Exact("/a"), claim.Prefix("/b"), claim.Child("/c"), claim.Exact("/d/*"), claim.Exact("/e/+")},
	}
	for range 2 {
		if err := WriteClaims(dir, want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, ReadClaims(dir)); diff != "" {
			t.Error(diff)
		}
	}
}

// A claims file of any version is read right or not at all: a stage that does not come up
// would lose its requests to another one by claims that are too narrow.
func TestClaimsOfOtherVersions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file string
		want map[string][]claim.Claim
	}{
		"first version": {
			`{"aggregator": ["//*"], "core": ["/a", "/b/*", "/c/+", "/*"], "version": ["/d/"], "stages": ["//+"]}`,
			map[string][]claim.Claim{
				"aggregator": {claim.Prefix("/")},
				"core":       {claim.Exact("/a"), claim.Prefix("/b"), claim.Child("/c"), claim.Prefix("/")},
				"version":    {claim.Exact("/d/")},
				"stages":     {claim.Child("/")},
			},
		},
		"claim that cannot be read": {
			`{"version": 2, "stages": {"core": ["/a", "/b/*c"], "extensions": ["/apis/*"]}}`,
			map[string][]claim.Claim{"extensions": {claim.Child("/apis")}},
		},
		"claim of the first version that cannot be read": {`{"core": ["a"]}`, map[string][]claim.Claim{}},
		"later version": {`{"version": 3, "stages": {"core": ["/a"]}}`, nil},
		"other content": {`["/a"]`, nil},
		"cut off":       {`{"version": 2, "sta`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(claims(dir), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, ReadClaims(dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
