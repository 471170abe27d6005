// Package chain holds what makes a chain of stages: the order that their declared
// delegation gives, and what each of them claims.
//
// It is pure: no input or output, no clock.
package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Declaration is a stage as the configuration declares it.
type Declaration struct {
	Name string
	// Delegate is the stage that gets the requests that this one does not serve.
	// The tail of the chain has none.
	Delegate string
}

// OrderError is one reason why declarations do not form a chain.
type OrderError struct {
	// Stage is the stage whose declaration is wrong; empty if it is not a single one.
	Stage string
	// Unknown is the delegate that is not declared; empty for other problems.
	Unknown string
	// Problem is what is wrong, without the name of Stage.
	Problem string
}

func (e *OrderError) Error() string {
	if e.Stage == "" {
		return e.Problem
	}
	return fmt.Sprintf("stage %q: %s", e.Stage, e.Problem)
}

// Order returns the names of the stages from the head of the chain to its tail.
// The order of the declarations does not matter. If they do not form one chain,
// the error joins an *OrderError for each reason.
func Order(decls []Declaration) ([]string, error) {
	if len(decls) == 0 {
		return nil, errors.Join(&OrderError{Problem: "no stage is declared"})
	}
	g := newGraph(decls)
	g.checkDelegates()
	g.checkCycles()
	g.checkForks()
	g.checkHeads()
	if len(g.problems) > 0 {
		return nil, errors.Join(g.problems...)
	}
	return g.walk(g.heads()[0]), nil
}

// graph has the edges between stages and their delegates. A stage has at most one
// delegate, so each walk ends at a stage without one, or in a cycle.
type graph struct {
	names    []string            // sorted
	next     map[string]string   // stage to its delegate, where that is declared
	declared map[string]string   // stage to its delegate as declared
	before   map[string][]string // stage to the stages that delegate to it, sorted
	problems []error
}

func newGraph(decls []Declaration) *graph {
	g := &graph{next: map[string]string{}, declared: map[string]string{}, before: map[string][]string{}}
	for _, d := range decls {
		switch _, twice := g.declared[d.Name]; {
		case d.Name == "":
			g.fail("", "a stage without a name is declared")
		case twice:
			g.fail(d.Name, "declared twice")
		default:
			g.declared[d.Name] = d.Delegate
			g.names = append(g.names, d.Name)
		}
	}
	slices.Sort(g.names)
	for _, name := range g.names {
		delegate := g.declared[name]
		if _, ok := g.declared[delegate]; ok && delegate != name {
			g.next[name] = delegate
			g.before[delegate] = append(g.before[delegate], name)
		}
	}
	return g
}

func (g *graph) fail(stage, format string, args ...any) {
	g.problems = append(g.problems, &OrderError{Stage: stage, Problem: fmt.Sprintf(format, args...)})
}

// checkDelegates finds delegates that are the stage itself or are not declared.
func (g *graph) checkDelegates() {
	for _, name := range g.names {
		delegate := g.declared[name]
		_, known := g.declared[delegate]
		switch {
		case delegate == name:
			g.fail(name, "delegates to itself")
		case delegate != "" && !known:
			g.problems = append(g.problems, &OrderError{Stage: name, Unknown: delegate,
				Problem: fmt.Sprintf("delegates to %q, which is not declared", delegate)})
		}
	}
}

// checkCycles reports each cycle once, from the first of its names, and whether it is
// reachable from a head.
func (g *graph) checkCycles() {
	reached := map[string]bool{}
	heads := g.heads()
	for _, head := range heads {
		for _, name := range g.walk(head) {
			reached[name] = true
		}
	}
	for _, name := range g.names {
		cycle := g.cycleOf(name)
		if len(cycle) == 0 || slices.Min(cycle) != name {
			continue
		}
		note := ""
		if len(heads) > 0 && !reached[name] {
			note = fmt.Sprintf("; it is unreachable from %s", quoted(heads))
		}
		g.fail(name, "delegation goes in a cycle: %s%s", strings.Join(append(cycle, name), " → "), note)
	}
}

// cycleOf returns the cycle that name is part of, beginning with name.
func (g *graph) cycleOf(name string) []string {
	cycle := []string{name}
	for at := g.next[name]; at != "" && len(cycle) <= len(g.names); at = g.next[at] {
		if at == name {
			return cycle
		}
		cycle = append(cycle, at)
	}
	return nil
}

// checkForks finds stages that several delegate to. What closes a cycle is
// reported as one.
func (g *graph) checkForks() {
	for _, name := range g.names {
		var forks []string
		for _, from := range g.before[name] {
			if g.cycleOf(from) == nil {
				forks = append(forks, from)
			}
		}
		for _, from := range forks[min(1, len(forks)):] {
			g.fail(from, "%q is the delegate of %s: a chain does not fork", name, quoted(forks))
		}
	}
}

// checkHeads finds several chains beside each other. Stages that are cut off by
// another problem, such as an unknown delegate, are not reported again.
func (g *graph) checkHeads() {
	tails := map[string]bool{}
	var heads []string
	for _, head := range g.heads() {
		walk := g.walk(head)
		tail := walk[len(walk)-1]
		if g.declared[tail] == "" && !tails[tail] {
			tails[tail] = true
			heads = append(heads, head)
		}
	}
	for _, head := range heads[min(1, len(heads)):] {
		g.fail(head, "two heads, %s: no stage delegates to either, so one of them would be unreachable",
			quoted([]string{heads[0], head}))
	}
}

// heads returns the stages that are no other stage's delegate.
func (g *graph) heads() []string {
	var heads []string
	for _, name := range g.names {
		if len(g.before[name]) == 0 {
			heads = append(heads, name)
		}
	}
	return heads
}

// walk returns the stages from name on, each once.
func (g *graph) walk(name string) []string {
	var walk []string
	seen := map[string]bool{}
	for at := name; at != "" && !seen[at]; at = g.next[at] {
		seen[at] = true
		walk = append(walk, at)
	}
	return walk
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fmt.Sprintf("%q", name)
	}
	if last := len(out) - 1; last > 0 {
		return strings.Join(out[:last], ", ") + " and " + out[last]
	}
	return out[0]
}
