package front

import (
	zpages "k8s.io/apiserver/pkg/server/flagz"
)

// flagz is what /flagz shows.
func flagz(flags *Flags) zpages.Reader {
	return zpages.NamedFlagSetsReader{FlagSets: flags.named}
}
