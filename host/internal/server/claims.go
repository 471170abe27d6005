package server

import (
	"strings"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func claimsOf(wire []*stagev1.Claim) []chain.Claim {
	claims := make([]chain.Claim, len(wire))
	for i, c := range wire {
		claims[i] = chain.Claim{Path: c.GetPath(), Match: chain.Match(c.GetMatch())}
	}
	return claims
}

// claimTexts writes claims as people read them: /a/* covers everything below /a too, /a/+
// one segment more.
func claimTexts(claims []chain.Claim) []string {
	suffix := map[chain.Match]string{chain.Prefix: "/*", chain.Child: "/+"}
	texts := make([]string, len(claims))
	for i, c := range claims {
		texts[i] = c.Path + suffix[c.Match]
	}
	return texts
}

// wireClaims reads what claimTexts has written.
func wireClaims(texts []string) []*stagev1.Claim {
	var claims []*stagev1.Claim
	for _, text := range texts {
		c := &stagev1.Claim{Path: text, Match: stagev1.Claim_EXACT}
		if path, ok := strings.CutSuffix(text, "/*"); ok {
			c.Path, c.Match = path, stagev1.Claim_PREFIX
		} else if path, ok := strings.CutSuffix(text, "/+"); ok {
			c.Path, c.Match = path, stagev1.Claim_CHILD
		}
		claims = append(claims, c)
	}
	return claims
}
