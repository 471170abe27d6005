package stagev1

import (
	"slices"
	"testing"

	"github.com/catena-dev/catena/sdk/claim"
)

// Each match of the protocol is that of package claim, and stays what it is both ways.
func TestClaims(t *testing.T) {
	t.Parallel()
	claims := []claim.Claim{claim.Exact("/a"), claim.Prefix("/b"), claim.Child("/c"), {Path: "x", Match: 9}}
	messages := EncodeClaims(claims)
	for i, match := range []Claim_Match{Claim_EXACT, Claim_PREFIX, Claim_CHILD, 9} {
		if messages[i].GetMatch() != match || messages[i].GetPath() != claims[i].Path {
			t.Errorf("%#v is %v", claims[i], messages[i])
		}
	}
	if got := DecodeClaims(messages); !slices.Equal(got, claims) {
		t.Errorf("%v, want %v", got, claims)
	}
	if got := DecodeClaims([]*Claim{nil}); got[0] != (claim.Claim{}) {
		t.Errorf("%v", got)
	}
}
