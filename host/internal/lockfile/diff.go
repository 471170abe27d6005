package lockfile

import "slices"

// Change is a difference between two locks: an entry was added, removed or has replaced another.
type Change struct {
	// Old is nil for an entry that was added, New for one that was removed.
	Old, New *Entry
}

// Diff returns the changes from one lock to another, in the order of the entries. An entry replaces
// the only other one of its stage and platform; otherwise entries are added and removed.
func Diff(from, to Lock) []Change {
	var changes []Change
	for _, group := range groups(from, to) {
		removed := missing(group.from, group.to)
		added := missing(group.to, group.from)
		if len(removed) == 1 && len(added) == 1 {
			changes = append(changes, Change{Old: &removed[0], New: &added[0]})
			continue
		}
		for i := range removed {
			changes = append(changes, Change{Old: &removed[i]})
		}
		for i := range added {
			changes = append(changes, Change{New: &added[i]})
		}
	}
	return changes
}

// group has the entries of a stage on a platform in two locks.
type group struct {
	stage, platform string
	from, to        []Entry
}

func groups(from, to Lock) []group {
	var all []group
	for _, e := range New(slices.Concat(from.Entries, to.Entries)...).Entries {
		if n := len(all); n > 0 && all[n-1].stage == e.Stage && all[n-1].platform == e.Platform {
			continue
		}
		g := group{stage: e.Stage, platform: e.Platform}
		other := func(e Entry) bool { return e.Stage != g.stage || e.Platform != g.platform }
		g.from, g.to = from.Delete(other).Entries, to.Delete(other).Entries
		all = append(all, g)
	}
	return all
}

// missing returns the entries of one list that the other does not have in just that way.
func missing(of, in []Entry) []Entry {
	var all []Entry
	for _, e := range of {
		if !slices.ContainsFunc(in, e.equal) {
			all = append(all, e)
		}
	}
	return all
}

func (e Entry) equal(other Entry) bool {
	return compare(e, other) == 0 && e.Version == other.Version && slices.Equal(e.Needs, other.Needs)
}
