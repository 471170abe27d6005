package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/printable"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Source is the layer: the path of a file, "env NAME", "--set KEY" or "--FLAG". It is
	// empty if no layer is to blame, such as for a missing key.
	Source string
	// Line is the line in the file, 0 if it is not known.
	Line int
	// Key is the dotted key, empty if the problem is with the source as a whole.
	Key     string
	Message string
}

func (p *Problem) Error() string {
	var parts []string
	if p.Source != "" {
		parts = append(parts, Setting{Source: p.Source, Line: p.Line}.Where())
	}
	if p.Key != "" && p.Source != "--set "+p.Key {
		parts = append(parts, p.Key)
	}
	return printable.Line(strings.Join(append(parts, p.Message), ": "))
}

// problems collects what is wrong, so that all of it is reported at once.
type problems struct {
	list []*Problem
	// incomplete is set if declarations of stages are missing because of an error, so that
	// their order cannot be checked.
	incomplete bool
	// unread is set if a file could not be read.
	unread bool
	// hidden are the keys whose values are not known because of an error.
	hidden map[string]bool
}

// err joins all problems: sources in the order of their first problem, and
// within a file by line. It returns nil if they have no place.
func (p *problems) err() error {
	rank := map[string]int{}
	for i, problem := range p.list {
		if _, ok := rank[problem.Source]; !ok {
			rank[problem.Source] = i
		}
	}
	slices.SortStableFunc(p.list, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(rank[a.Source], rank[b.Source]), cmp.Compare(a.Line, b.Line))
	})
	errs := make([]error, len(p.list))
	for i, problem := range p.list {
		errs[i] = problem
	}
	return errors.Join(errs...)
}

// hide notes that the value at path is not known because of an error.
func (p *problems) hide(path []string) {
	if p.hidden == nil {
		p.hidden = map[string]bool{}
	}
	p.hidden[dotted(path)] = true
}

func (p *problems) add(l *layer, path []string, format string, args ...any) {
	problem := &Problem{Key: dotted(path), Message: fmt.Sprintf(format, args...)}
	if l != nil {
		problem.Source, problem.Line = l.source, l.line(path)
	}
	p.list = append(p.list, problem)
}
