package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// merger lays layers over each other, later ones on top, and remembers which one
// each value came from.
type merger struct {
	root     *schema
	ko       *koanf.Koanf
	problems *problems
	// origins has the layer of each dotted key; of a section, the first
	// layer that has it.
	origins map[string]*layer
}

func newMerger(root *schema, p *problems) *merger {
	return &merger{root: root, ko: koanf.New("."), problems: p, origins: map[string]*layer{}}
}

// add lays the normalized layer l on top: mappings are merged, other values
// replaced, and null undoes earlier layers.
func (m *merger) add(l *layer) error {
	return m.ko.Load(confmap.Provider(l.values, ""), nil,
		koanf.WithMergeFunc(func(src, dest map[string]any) error {
			m.section(m.root, nil, l, src, dest)
			return nil
		}))
}

func (m *merger) section(s *schema, path []string, l *layer, src, dest map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(src)) {
		child, at, v := s.child(name), join(path, name), src[name]
		switch {
		case v == nil:
			m.remove(l, at, dest)
		case child.key == nil:
			m.section(child, at, l, asMap(v), m.enter(l, at, dest))
		case child.key.Type == Object:
			m.object(at, l, asMap(v), m.enter(l, at, dest))
		default:
			m.put(l, at, v, dest)
		}
	}
}

// object merges a stage's own configuration, in which null is a value.
func (m *merger) object(path []string, l *layer, src, dest map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(src)) {
		at := join(path, name)
		if sub, ok := src[name].(map[string]any); ok {
			m.object(at, l, sub, m.enter(l, at, dest))
		} else {
			m.put(l, at, src[name], dest)
		}
	}
}

// enter returns the mapping at path, which ends in dest, and makes it if need be.
func (m *merger) enter(l *layer, path []string, dest map[string]any) map[string]any {
	name := path[len(path)-1]
	sub, ok := dest[name].(map[string]any)
	if !ok {
		sub = map[string]any{}
		m.put(l, path, sub, dest)
	}
	return sub
}

func (m *merger) put(l *layer, path []string, v any, dest map[string]any) {
	name := path[len(path)-1]
	if _, replaced := dest[name]; replaced {
		m.forget(path)
	}
	dest[name] = v
	m.origins[dotted(path)] = l
}

func (m *merger) remove(l *layer, path []string, dest map[string]any) {
	name := path[len(path)-1]
	if _, ok := dest[name]; !ok && len(path) == 2 && path[0] == "stages" {
		m.problems.add(l, path, "null removes a stage, and no earlier layer declares this one; write {} for a stage without keys")
		m.problems.incomplete = true
	}
	delete(dest, name)
	m.forget(path)
}

// forget drops the origins of path and of all below it.
func (m *merger) forget(path []string) {
	key := dotted(path)
	maps.DeleteFunc(m.origins, func(k string, _ *layer) bool {
		return k == key || strings.HasPrefix(k, key+".")
	})
}

// culprit returns the layer that sets path, or the nearest section around it; nil if only a
// built-in layer does.
func (m *merger) culprit(path []string) *layer {
	for n := len(path); n > 0; n-- {
		if l := m.origins[dotted(path[:n])]; l != nil && !l.builtin {
			return l
		}
	}
	return nil
}

// values returns the merged values of the section with the given dotted key.
func (m *merger) values(section string) map[string]any { return asMap(m.ko.Get(section)) }

// asMap returns nil for what is no mapping.
func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
