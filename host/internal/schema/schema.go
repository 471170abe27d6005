// Package schema checks a stage's own configuration against the JSON schema that the
// stage describes. Validation is that of github.com/google/jsonschema-go (draft 7 and
// draft 2020-12); this package finds the keys that its errors are about, and all of them.
package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/suggest"
)

// Problem is what is wrong with one key.
type Problem struct {
	// Key is the dotted path inside the configuration; empty for all of it.
	Key     string
	Message string
}

// Check returns what is wrong with a configuration; nothing if the schema is empty. No
// configuration is an empty one, and a key that is null is one that is not there. Of many problems it returns the first. The
// error is that the schema itself is malformed, or that ctx has ended.
func Check(ctx context.Context, text string, config map[string]any) ([]Problem, error) {
	if text == "" {
		return nil, nil
	}
	root, resolved, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("its configuration's schema is no JSON schema: %w", err)
	}
	value, err := asJSON(config)
	if err != nil {
		return nil, err
	}
	w := walk{root: root, ctx: ctx}
	w.value("", root, value, 0)
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if len(w.problems) > 0 || refers(root) {
		return w.problems, nil
	}
	if err := resolved.Validate(value); err != nil { // what the walk does not look at
		secrets := &Secrets{walk: walk{root: root}, steps: maxSteps}
		if secrets.holds(root) {
			return []Problem{{Message: "is not what the schema asks for; some values are secret"}}, nil
		}
		return []Problem{{Message: plain(err)}}, nil
	}
	return nil, nil
}

// parse reads a schema. The library takes any text for the name of a type.
func parse(text string) (*jsonschema.Schema, *jsonschema.Resolved, error) {
	if err := checkBounds(text); err != nil {
		return nil, nil, err
	}
	var plain any
	if err := json.Unmarshal([]byte(text), &plain); err != nil {
		return nil, nil, err
	}
	if _, ok := plain.(map[string]any); !ok {
		return nil, nil, errors.New("it is no JSON object")
	}
	if err := checkTypes("", plain); err != nil {
		return nil, nil, err
	}
	if err := checkPatterns(plain); err != nil {
		return nil, nil, err
	}
	root := &jsonschema.Schema{}
	if err := json.Unmarshal([]byte(text), root); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) { // its text has Go's types
			return nil, nil, fmt.Errorf("a %s is not what %s can be", wrong.Value, wrong.Field)
		}
		return nil, nil, err
	}
	resolved, err := root.Resolve(nil)
	return root, resolved, err
}

// types are the names of types that JSON schema has.
func types() []string {
	return []string{"array", "boolean", "integer", "null", "number", "object", "string"}
}

// checkTypes looks for names of unknown types, in a schema or what is in one, at the given JSON pointer.
func checkTypes(at string, schema any) error {
	switch schema := schema.(type) {
	case []any:
		for i, member := range schema {
			if err := checkTypes(at+"/"+strconv.Itoa(i), member); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(schema)) {
			value := schema[key]
			switch key {
			case "type":
				if err := checkType(at+"/type", value); err != nil {
					return err
				}
				continue
			case "enum", "const", "default", "examples":
				continue // values, not schemas
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas": // the keys are names
				members, _ := value.(map[string]any)
				for _, name := range slices.Sorted(maps.Keys(members)) {
					if err := checkTypes(at+"/"+key+"/"+name, members[name]); err != nil {
						return err
					}
				}
				continue
			}
			if err := checkTypes(at+"/"+key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkType(at string, value any) error {
	names, many := value.([]any)
	if !many {
		names = []any{value}
	}
	for _, name := range names {
		if text, ok := name.(string); !ok || !slices.Contains(types(), text) {
			return fmt.Errorf("%s: there is no type %q%s; the types are %s", at, fmt.Sprint(name),
				suggest.DidYouMean(fmt.Sprint(name), types()), strings.Join(types(), ", "))
		}
	}
	return nil
}

// refers reports whether a part of the schema refers to another. The library would follow a
// reference to itself for ever; the walk does not.
func refers(root *jsonschema.Schema) bool {
	text, err := json.Marshal(root)
	return err != nil || bytes.Contains(text, []byte(`"$ref"`)) || bytes.Contains(text, []byte(`"$dynamicRef"`))
}

// asJSON makes the values what JSON has, without those that are null.
func asJSON(config map[string]any) (map[string]any, error) {
	b, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	value := map[string]any{}
	if err := json.Unmarshal(b, &value); err != nil {
		return nil, err
	}
	if value == nil {
		value = map[string]any{}
	}
	dropNull(value)
	return value, nil
}

func dropNull(v any) {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, member any) bool { return member == nil })
		for _, member := range v {
			dropNull(member)
		}
	case []any:
		for _, item := range v {
			dropNull(item)
		}
	}
}

// walk goes through a value and its schema at the same time.
type walk struct {
	root     *jsonschema.Schema
	ctx      context.Context
	problems []Problem
}

func (w *walk) report(key, format string, args ...any) {
	if message := fmt.Sprintf(format, args...); len(w.problems) < bounds.Problems {
		w.problems = append(w.problems, Problem{Key: key, Message: strings.ToValidUTF8(message[:min(len(message), bounds.Reason)], "")})
	}
}

// maxDepth bounds schemas that refer to themselves.
const maxDepth = 100

func (w *walk) value(key string, s *jsonschema.Schema, value any, depth int) {
	if s = w.refer(s); s == nil || depth > maxDepth || len(w.problems) == bounds.Problems || w.ctx.Err() != nil {
		return
	}
	if err := own(s, value); err != nil {
		if isSecret(s) {
			w.report(key, "is not what the schema asks for; the value is secret")
		} else {
			w.report(key, "%s", plain(err))
		}
		return
	}
	switch value := value.(type) {
	case map[string]any:
		w.members(key, s, value, depth)
	case []any:
		if s.Items != nil {
			for i, item := range value {
				w.value(key+"["+strconv.Itoa(i)+"]", s.Items, item, depth+1)
			}
		}
	}
}

func (w *walk) members(key string, s *jsonschema.Schema, value map[string]any, depth int) {
	for _, name := range s.Required {
		if _, ok := value[name]; !ok {
			w.report(join(key, name), "is required")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(value)) {
		switch member, known := s.Properties[name]; {
		case known:
			w.value(join(key, name), member, value[name], depth+1)
		case len(s.PatternProperties) > 0 || s.AdditionalProperties == nil:
		case isFalse(s.AdditionalProperties):
			w.report(join(key, name), "unknown key%s", suggest.DidYouMean(name, slices.Sorted(maps.Keys(s.Properties))))
		default:
			w.value(join(key, name), s.AdditionalProperties, value[name], depth+1)
		}
	}
}

// refer follows a reference to a definition of the schema; nil if it is another kind.
func (w *walk) refer(s *jsonschema.Schema) *jsonschema.Schema {
	for range maxDepth {
		if s == nil || s.Ref == "" {
			return s
		}
		if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
			s = w.root.Defs[name]
		} else if name, ok := strings.CutPrefix(s.Ref, "#/definitions/"); ok {
			s = w.root.Definitions[name]
		} else if s.Ref == "#" {
			s = w.root
		} else {
			return nil
		}
	}
	return nil
}

// own checks what the schema says of the value itself, whatever it says of its members.
func own(s *jsonschema.Schema, value any) error {
	flat := &jsonschema.Schema{
		Type: s.Type, Types: s.Types, Enum: s.Enum, Const: s.Const,
		MultipleOf: s.MultipleOf, Minimum: s.Minimum, Maximum: s.Maximum,
		ExclusiveMinimum: s.ExclusiveMinimum, ExclusiveMaximum: s.ExclusiveMaximum,
		MinLength: s.MinLength, MaxLength: s.MaxLength, Pattern: s.Pattern,
		MinItems: s.MinItems, MaxItems: s.MaxItems, UniqueItems: s.UniqueItems,
		MinProperties: s.MinProperties, MaxProperties: s.MaxProperties,
	}
	resolved, err := flat.Resolve(nil)
	if err != nil {
		return err
	}
	return resolved.Validate(value)
}

// isFalse recognises the schema that no value has.
func isFalse(s *jsonschema.Schema) bool {
	text, err := json.Marshal(s)
	return err == nil && (string(text) == "false" || string(text) == `{"not":{}}` || string(text) == `{"not":true}`)
}

func join(key, name string) string {
	if key == "" || name == "" {
		return key + name
	}
	return key + "." + name
}

var (
	prefixes  = regexp.MustCompile(`^(validating [^:]+: )+`)
	tooSmall  = regexp.MustCompile(`^minimum: \S+ is less than (\S+?)\.?0*$`)
	tooLarge  = regexp.MustCompile(`^maximum: \S+ is greater than (\S+?)\.?0*$`)
	wrongType = regexp.MustCompile(`^type: (?s:.*) has type "([^"]+)", want (?:one of )?"([^"]+)"$`)
)

// plain is the library's error in an operator's words.
func plain(err error) string {
	text := prefixes.ReplaceAllString(err.Error(), "")
	if m := wrongType.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("want %s, got %s", strings.ReplaceAll(strings.TrimPrefix(m[2], "null, "), ", ", " or "), m[1])
	}
	if m := tooSmall.FindStringSubmatch(text); m != nil {
		return "must be at least " + m[1]
	}
	if m := tooLarge.FindStringSubmatch(text); m != nil {
		return "must be at most " + m[1]
	}
	return strings.TrimSpace(text)
}

// Errors makes problems errors that name the key of the host's configuration.
func Errors(stage string, problems []Problem) error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s: %s (says stage %q)", join("stages."+stage+".config", p.Key), p.Message, stage))
	}
	return errors.Join(errs...)
}
