package stagev1

import "github.com/catena-dev/catena/sdk/claim"

// EncodeClaims returns claims as messages of the protocol.
func EncodeClaims(claims []claim.Claim) []*Claim {
	messages := make([]*Claim, len(claims))
	for i, c := range claims {
		messages[i] = &Claim{Path: c.Path, Match: Claim_Match(c.Match)}
	}
	return messages
}

// DecodeClaims returns the claims of messages, which need not be valid.
func DecodeClaims(messages []*Claim) []claim.Claim {
	claims := make([]claim.Claim, len(messages))
	for i, m := range messages {
		claims[i] = claim.Claim{Path: m.GetPath(), Match: claim.Match(m.GetMatch())}
	}
	return claims
}
