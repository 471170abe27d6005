package chain

import "testing"

func TestClaimAsText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		claim    Claim
		text     string
		yes, not []string
	}{
		{Claim{"/a", Exact}, "/a", []string{"/a"}, []string{"/a/", "/a/b", "/"}},
		{Claim{"/a", Prefix}, "/a/*", []string{"/a", "/a/", "/a/b/c"}, []string{"/ab", "/"}},
		{Claim{"/a/", Prefix}, "/a//*", []string{"/a/", "/a/b"}, []string{"/a"}},
		{Claim{"/", Prefix}, "/*", []string{"/", "/a", "/a/b"}, nil},
		{Claim{"/a", Child}, "/a/+", []string{"/a/b", "/a/b/"}, []string{"/a", "/a/b/c"}},
	} {
		if got := tc.claim.String(); got != tc.text {
			t.Errorf("%+v is %q, want %q", tc.claim, got, tc.text)
		}
		if got := ParseClaim(tc.text); got != tc.claim {
			t.Errorf("%q is %+v, want %+v", tc.text, got, tc.claim)
		}
		for _, path := range tc.yes {
			if !tc.claim.Covers(path) {
				t.Errorf("%s does not cover %s", tc.text, path)
			}
		}
		for _, path := range tc.not {
			if tc.claim.Covers(path) {
				t.Errorf("%s covers %s", tc.text, path)
			}
		}
	}
}
