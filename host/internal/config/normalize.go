package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/suggest"
)

// normalizer checks the values of one layer against the table of keys and converts
// each to the Go type of its key. A nil value is kept: it undoes earlier layers.
type normalizer struct {
	layer    *layer
	problems *problems
}

// normalize replaces the values of l by the valid ones.
func normalize(l *layer, root *schema, p *problems) {
	n := &normalizer{layer: l, problems: p}
	if l.complete {
		for _, name := range []string{"apiVersion", "kind"} {
			if l.values[name] == nil {
				n.fail([]string{name}, "missing, want %s", root.fields[name].key.Choices[0])
			}
		}
	}
	l.values = n.section(root, nil, l.values, l.text)
}

func (n *normalizer) fail(path []string, format string, args ...any) {
	n.problems.add(n.layer, path, format, args...)
	n.problems.hide(path)
	if bearsOnOrder(path) {
		n.problems.incomplete = true
	}
}

// bearsOnOrder reports whether a mistake at path hides a stage or its delegate.
func bearsOnOrder(path []string) bool {
	return path[0] == "stages" && (len(path) < 3 || path[2] == "delegate")
}

func (n *normalizer) section(s *schema, path []string, raw map[string]any, text bool) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		at := join(path, name)
		child := s.child(name)
		if child == nil {
			n.unknown(s, at)
			continue
		}
		if s.rule != nil {
			if err := s.rule(name); err != nil {
				n.fail(at, "%v", err)
				continue
			}
		}
		if v, ok := n.value(child, at, raw[name], text); ok {
			out[name] = v
		}
	}
	return out
}

func (n *normalizer) unknown(s *schema, path []string) {
	name := path[len(path)-1]
	hint := suggest.DidYouMean(name, s.names())
	meant, guessed := suggest.Nearest(name, s.names())
	if !guessed && len(path) == 1 && strings.Contains(name, "-") {
		hint = "; flags of kube-apiserver stand below apiserver:"
	}
	n.problems.add(n.layer, path, "unknown key%s", hint)
	if guessed {
		n.problems.hide(join(path[:len(path)-1], meant))
	}
	// What was meant may have been a delegate, or all stages.
	if meant == "delegate" || meant == "stages" || !guessed && path[0] == "stages" {
		n.problems.incomplete = true
	}
}

func (n *normalizer) value(s *schema, path []string, raw any, text bool) (any, bool) {
	if raw == nil && n.layer.empty[dotted(path)] {
		n.fail(path, "%s", nothingWritten(s, path))
		return nil, false
	}
	if raw == nil || text && raw == "null" {
		return nil, true
	}
	if s.key == nil {
		return n.sectionValue(s, path, raw, text)
	}
	v, err := convert(s.key, raw, text)
	if err == nil && s.key.check != nil {
		err = s.key.check(v)
	}
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			n.fail(path, "%s", line)
		}
		return nil, false
	}
	return v, true
}

// nothingWritten says what to do about a key without a value, as a section has whose keys are all comments: it could be
// meant as null, which undoes what earlier layers say, and could be meant as nothing.
func nothingWritten(s *schema, path []string) string {
	switch {
	case len(path) == 2 && path[0] == "stages":
		return "has no keys: write {} for a stage without keys, or null to remove the stage"
	case s.key == nil || s.key.Type == Object:
		return "has no keys: write some below it, leave the line out, or write null to undo what earlier layers have here"
	}
	return "has no value: write one, leave the line out, or write null to undo that of an earlier layer"
}

func (n *normalizer) sectionValue(s *schema, path []string, raw any, text bool) (any, bool) {
	if str, ok := raw.(string); ok && text {
		if object, ok := parseJSON(str).(map[string]any); ok {
			raw, text = object, false
		}
	}
	m, ok := raw.(map[string]any)
	if !ok {
		n.fail(path, "want a section with keys below it, have %s", describe(raw))
		return nil, false
	}
	return n.section(s, path, m, text), true
}
