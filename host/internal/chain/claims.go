package chain

import "github.com/catena-dev/catena/sdk/claim"

// StageClaims are the claims of one stage. A stage whose claims are not known,
// because it is not up yet, is to be given the prefix /: what it might have owned
// counts as its own.
type StageClaims struct {
	Name   string
	Claims []claim.Claim
}
