package sdk

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// strictness finds all that is wrong with a JSON value for a type, where encoding/json
// stops at the first error, and does not say where an unknown key is.
type strictness struct{ problems []error }

func (s *strictness) wrong(key, format string, args ...any) {
	s.problems = append(s.problems, ConfigProblem{Key: key, Message: fmt.Sprintf(format, args...)})
}

// check checks the value at the dotted path key. Null is as good as nothing.
func (s *strictness) check(key string, raw json.RawMessage, t reflect.Type) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return
	}
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	switch {
	case decodesItself(reflect.PointerTo(t)):
		s.leaf(key, raw, t)
	case t.Kind() == reflect.Struct:
		s.object(key, raw, t)
	case t.Kind() == reflect.Map:
		s.values(key, raw, t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8, t.Kind() == reflect.Array:
		s.list(key, raw, t.Elem())
	default:
		s.leaf(key, raw, t)
	}
}

func decodesItself(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Unmarshaler]()) || t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// leaf leaves the check to encoding/json.
func (s *strictness) leaf(key string, raw json.RawMessage, t reflect.Type) {
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Type != nil:
		s.wrong(key, "want %s, got %s", wanted(wrong.Type), wrong.Value)
	default:
		s.wrong(key, "%v", err)
	}
}

// wanted is what an operator is to write for a type.
func wanted(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if decodesItself(reflect.PointerTo(t)) {
		return "string"
	}
	return t.Kind().String()
}

func (s *strictness) object(key string, raw json.RawMessage, t reflect.Type) {
	members, ok := s.members(key, raw)
	if !ok {
		return
	}
	fields := fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if f, ok := fields.find(name); ok {
			s.check(join(key, name), members[name], f.Type)
		} else {
			s.wrong(join(key, name), "unknown key%s", fields.suggest(name))
		}
	}
}

func (s *strictness) values(key string, raw json.RawMessage, t reflect.Type) {
	members, _ := s.members(key, raw)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		s.check(join(key, name), members[name], t)
	}
}

// members returns the members of an object.
func (s *strictness) members(key string, raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		s.wrong(key, "want an object, got %s", kindOf(raw))
		return nil, false
	}
	return members, true
}

func (s *strictness) list(key string, raw json.RawMessage, t reflect.Type) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		s.wrong(key, "want a list, got %s", kindOf(raw))
		return
	}
	for i, item := range items {
		s.check(fmt.Sprintf("%s[%d]", key, i), item, t)
	}
}

// kindOf names the kind of a JSON value.
func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "list"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	default:
		return "number"
	}
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// fields are those of a struct by the name that they have in JSON.
type fields map[string]reflect.StructField

func fieldsOf(t reflect.Type) fields {
	all := fields{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && name == "":
		case name == "":
			all[f.Name] = f
		default:
			all[name] = f
		}
	}
	return all
}

// find finds a field whose name has no tag in any case, as encoding/json does.
func (all fields) find(name string) (reflect.StructField, bool) {
	if f, ok := all[name]; ok {
		return f, true
	}
	for known, f := range all {
		if strings.EqualFold(known, name) && f.Name == known {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// suggest names the key that may have been meant.
func (all fields) suggest(name string) string {
	for _, known := range slices.Sorted(maps.Keys(all)) {
		if strings.EqualFold(known, name) {
			return fmt.Sprintf(", did you mean %q?", known)
		}
	}
	if len(all) == 0 {
		return ", there is nothing to configure"
	}
	return " (known: " + strings.Join(slices.Sorted(maps.Keys(all)), ", ") + ")"
}
