package grants

import (
	"errors"
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// allFlags, in the flags that a stage declares to read, stands for all of them.
const allFlags = "*"

// SelectFlags returns those of the API server's flags, each as name=value, that a stage gets:
// those that it declares to read, or all if it declares nothing, but for those about etcd and those that
// name private keys, which have to be granted. ownStore returns the flags with which a
// stage reaches keys of its own in the store, which it gets in place of those that lead to
// all of it; nil leaves these. It is an error if the stage would store objects unencrypted that the
// operator wants to be encrypted.
func (g Grants) SelectFlags(needs *stagev1.Needs, flags []string, ownStore func() ([]string, error)) ([]string, error) {
	store := g.storeFor(needs)
	var selected []string
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		if name == encryption && value != "" && store != NoStore && !g.Keys {
			return nil, errors.New("grants.keys: apiserver." + encryption + " is set, and without its keys the stage would store its objects unencrypted: grant it keys, or nothing of the store")
		}
		if g.allowsFlag(name, store) && (FlagIs(name, FlagStore) || declares(needs, name)) {
			selected = append(selected, flag)
		}
	}
	if store != OwnKeys || ownStore == nil {
		return selected, nil
	}
	own, err := ownStore()
	if err != nil {
		return nil, err
	}
	selected = slices.DeleteFunc(selected, func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return FlagIs(name, FlagCluster)
	})
	return slices.Sorted(slices.Values(append(selected, own...))), nil
}

// storeFor returns what a stage gets of the store: what it is granted, and no more than it
// declares to need.
func (g Grants) storeFor(needs *stagev1.Needs) Store {
	if declared := storeOf(needs.GetStore()); needs != nil && g.Store.allows(declared) {
		return declared
	}
	return g.Store
}

func (g Grants) allowsFlag(name string, store Store) bool {
	return (g.Keys || !FlagIs(name, FlagKeys)) && (store != NoStore || !FlagIs(name, FlagStore))
}

// declares reports whether a stage declares to read a flag, or declares nothing.
func declares(needs *stagev1.Needs, name string) bool {
	return needs == nil || slices.Contains(needs.GetFlags(), allFlags) || slices.Contains(needs.GetFlags(), name)
}
