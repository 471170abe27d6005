package supervisor

import (
	"fmt"
	"slices"
)

// presentStage is a stage of the present chain as a plan sees it.
type presentStage struct {
	spec Spec
	// delegates are the stages downstream as its process was told; up reports whether it has one.
	delegates []string
	up        bool
}

// plan is what has to be done to get from one chain to another.
type plan struct {
	// added, removed and swapped are names, in the order of the chain.
	added, removed, swapped []string
	reordered               bool
}

// plan is what has to be done for the request.
func (r request) plan(present []presentStage) (plan, error) {
	p, err := planFor(present, r.specs)
	if err != nil {
		return plan{}, err
	}
	for _, name := range append(r.also, r.swap) {
		if name != "" && !slices.Contains(p.swapped, name) {
			p.swapped = append(p.swapped, name)
		}
	}
	return p, nil
}

// planFor compares the present chain with the one that is wanted, both from head to tail.
func planFor(present []presentStage, wanted []Spec) (plan, error) {
	var p plan
	if len(wanted) == 0 {
		return p, fmt.Errorf("a chain has one stage at least")
	}
	old, names := map[string]presentStage{}, make([]string, len(wanted))
	var before, after []string
	for _, st := range present {
		old[st.spec.Name] = st
	}
	seen := map[string]bool{}
	for i, spec := range wanted {
		if seen[spec.Name] {
			return p, fmt.Errorf("stage %q is in the chain twice", spec.Name)
		}
		names[i], seen[spec.Name] = spec.Name, true
	}
	for i, spec := range wanted {
		st, there := old[spec.Name]
		switch {
		case !there:
			p.added = append(p.added, spec.Name)
			continue
		case !st.spec.Process.Equal(spec.Process), st.up && !slices.Equal(st.delegates, names[i+1:]):
			p.swapped = append(p.swapped, spec.Name)
		}
		after = append(after, spec.Name)
	}
	for _, st := range present {
		if name := st.spec.Name; seen[name] {
			before = append(before, name)
		} else {
			p.removed = append(p.removed, name)
		}
	}
	p.reordered = !slices.Equal(before, after)
	return p, nil
}

func (p plan) empty() bool {
	return len(p.added)+len(p.removed)+len(p.swapped) == 0 && !p.reordered
}

// concerns reports whether the stage gets another generation.
func (p plan) concerns(name string) bool {
	return slices.Contains(p.added, name) || slices.Contains(p.swapped, name)
}
