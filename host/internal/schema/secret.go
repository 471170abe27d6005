package schema

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Secrets says which keys of a configuration its schema marks as secret: by writeOnly, or by the
// format password.
type Secrets struct {
	walk walk
	// steps is how many more parts of the schema are looked at, which may refer to themselves.
	steps int
}

const maxSteps = 10_000

// ParseSecrets reads a schema. No key is secret if it is empty.
func ParseSecrets(text string) (*Secrets, error) {
	s := &Secrets{walk: walk{root: &jsonschema.Schema{}}}
	if text == "" {
		return s, nil
	}
	if err := checkBounds(text); err != nil {
		return nil, fmt.Errorf("its configuration's schema is refused: %w", err)
	}
	if err := json.Unmarshal([]byte(text), s.walk.root); err != nil {
		return nil, fmt.Errorf("its configuration's schema is no JSON schema: %w", err)
	}
	return s, nil
}

// Hide reports whether the value of a key is secret: whether the key, one around it or one
// inside of it is marked. In doubt, as with alternatives, it is.
func (s *Secrets) Hide(path []string) bool {
	s.steps = maxSteps
	return s.hide(s.walk.root, path)
}

func (s *Secrets) hide(at *jsonschema.Schema, path []string) bool {
	if at = s.walk.refer(at); at == nil {
		return false
	}
	if s.steps--; s.steps < 0 || isSecret(at) {
		return true
	}
	deeper := func(rest []string) func(*jsonschema.Schema) bool {
		return func(next *jsonschema.Schema) bool { return s.hide(next, rest) }
	}
	alternatives := slices.Concat(at.AllOf, at.AnyOf, at.OneOf, []*jsonschema.Schema{at.If, at.Then, at.Else})
	if slices.ContainsFunc(alternatives, deeper(path)) {
		return true
	}
	if len(path) == 0 { // a list, or an empty object
		return slices.ContainsFunc(append(slices.Concat(at.PrefixItems, at.ItemsArray), at.Items), s.holds)
	}
	if property, known := at.Properties[path[0]]; known && s.hide(property, path[1:]) {
		return true
	} else if known {
		return false
	}
	for _, next := range at.PatternProperties {
		if s.hide(next, path[1:]) {
			return true
		}
	}
	return s.hide(at.AdditionalProperties, path[1:])
}

// holds reports whether a schema marks anything inside of a value.
func (s *Secrets) holds(at *jsonschema.Schema) bool {
	if s.hide(at, nil) {
		return true
	}
	if at = s.walk.refer(at); at == nil {
		return false
	}
	for _, property := range at.Properties {
		if s.holds(property) {
			return true
		}
	}
	return s.holds(at.AdditionalProperties)
}

func isSecret(s *jsonschema.Schema) bool { return s.WriteOnly || s.Format == "password" }
