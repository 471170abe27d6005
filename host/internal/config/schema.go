package config

import (
	"maps"
	"slices"
	"strings"
)

// schema is the table of keys as a tree. A node is a section, which has fields or
// takes any name, or a leaf, which has a key.
type schema struct {
	key    *Key
	fields map[string]*schema
	any    *schema            // what stands below a name of the user's choice
	rule   func(string) error // for such names
}

func newSchema(keys []Key) *schema {
	root := &schema{}
	for i := range keys {
		at := root
		for _, name := range strings.Split(keys[i].Path, ".") {
			at = at.grow(name)
		}
		at.key = &keys[i]
	}
	root.fields["apiserver"].rule = flagName
	root.fields["stages"].rule = stageName
	root.fields["stages"].any.fields["apiserver"].rule = flagName
	root.fields["stages"].any.fields["env"].rule = variableName
	return root
}

func (s *schema) grow(name string) *schema {
	if name == "*" {
		if s.any == nil {
			s.any = &schema{}
		}
		return s.any
	}
	if s.fields == nil {
		s.fields = map[string]*schema{}
	}
	if s.fields[name] == nil {
		s.fields[name] = &schema{}
	}
	return s.fields[name]
}

// child returns what stands below name, nil if the name is unknown.
func (s *schema) child(name string) *schema {
	if c := s.fields[name]; c != nil {
		return c
	}
	return s.any
}

func (s *schema) names() []string { return slices.Sorted(maps.Keys(s.fields)) }

// join returns path with one more name, without sharing memory with path.
func join(path []string, name string) []string {
	return append(path[:len(path):len(path)], name)
}

// dotted returns path as one key, as --set takes it: a dot or backslash inside of a
// name is escaped with a backslash.
func dotted(path []string) string {
	escaped := make([]string, len(path))
	for i, name := range path {
		escaped[i] = strings.NewReplacer(`\`, `\\`, `.`, `\.`).Replace(name)
	}
	return strings.Join(escaped, ".")
}

// undotted is the inverse of dotted.
func undotted(key string) []string {
	var path []string
	var name strings.Builder
	for i := 0; i < len(key); i++ {
		switch {
		case key[i] == '\\' && i+1 < len(key):
			i++
			name.WriteByte(key[i])
		case key[i] == '.':
			path = append(path, name.String())
			name.Reset()
		default:
			name.WriteByte(key[i])
		}
	}
	return append(path, name.String())
}
