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

// configChecker finds all problems of a JSON value for a type. encoding/json stops at the
// first error and does not say where an unknown key is.
type configChecker struct{ problems []error }

func (c *configChecker) add(key, format string, args ...any) {
	c.problems = append(c.problems, ConfigProblem{Key: key, Message: fmt.Sprintf(format, args...)})
}

// check checks the value at the dotted path key. Null counts as absent.
func (c *configChecker) check(key string, raw json.RawMessage, t reflect.Type) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return
	}
	for t.Kind() == reflect.Pointer && !hasUnmarshaler(t) {
		t = t.Elem()
	}
	switch {
	case hasUnmarshaler(reflect.PointerTo(t)):
		c.scalar(key, raw, t)
	case t.Kind() == reflect.Struct:
		c.object(key, raw, t)
	case t.Kind() == reflect.Map:
		c.values(key, raw, t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8, t.Kind() == reflect.Array:
		c.list(key, raw, t.Elem())
	default:
		c.scalar(key, raw, t)
	}
}

func hasUnmarshaler(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Unmarshaler]()) || t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// scalar leaves the check to encoding/json.
func (c *configChecker) scalar(key string, raw json.RawMessage, t reflect.Type) {
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Type != nil:
		c.add(key, "want %s, got %s", wanted(wrong.Type), wrong.Value)
	default:
		c.add(key, "%v", err)
	}
}

// wanted returns the name of a type for operators.
func wanted(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if hasUnmarshaler(reflect.PointerTo(t)) {
		return "string"
	}
	return t.Kind().String()
}

func (c *configChecker) object(key string, raw json.RawMessage, t reflect.Type) {
	members, ok := c.members(key, raw)
	if !ok {
		return
	}
	fields := fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if f, ok := fields.find(name); ok {
			c.check(join(key, name), members[name], f.Type)
		} else {
			c.add(join(key, name), "unknown key%s", fields.suggest(name))
		}
	}
}

func (c *configChecker) values(key string, raw json.RawMessage, t reflect.Type) {
	members, _ := c.members(key, raw)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		c.check(join(key, name), members[name], t)
	}
}

// members returns the members of an object.
func (c *configChecker) members(key string, raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		c.add(key, "want an object, got %s", kindOf(raw))
		return nil, false
	}
	return members, true
}

func (c *configChecker) list(key string, raw json.RawMessage, t reflect.Type) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		c.add(key, "want a list, got %s", kindOf(raw))
		return
	}
	for i, item := range items {
		c.check(fmt.Sprintf("%s[%d]", key, i), item, t)
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

// find returns the field of a name. As in encoding/json, the case of a name without a tag
// does not matter.
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

// suggest returns the rest of the message about an unknown key.
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
