package sdk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaVersion is the dialect of the schemas that the SDK derives.
const schemaVersion = "https://json-schema.org/draft/2020-12/schema"

// configSchema returns the JSON schema of the stage's configuration: the one that is
// given, or else the one of the type of Config. It is empty if there is neither.
func (s Stage) configSchema() (string, error) {
	if s.ConfigSchema != "" || s.Config == nil {
		return s.ConfigSchema, nil
	}
	defaults, err := defaultsOf(s.Config)
	if err != nil {
		return "", err
	}
	t := defaults.Type().Elem()
	if t.Kind() != reflect.Struct {
		return "", fmt.Errorf("want a struct, got %s", t)
	}
	texts := map[reflect.Type]*jsonschema.Schema{}
	findTexts(t, map[reflect.Type]bool{}, texts)
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: texts})
	if err != nil {
		return "", err
	}
	value, err := json.Marshal(defaults.Interface())
	if err != nil {
		return "", err
	}
	markSecrets(t, schema)
	relax(schema, value)
	schema.Schema, schema.Default = schemaVersion, nil
	text, err := json.Marshal(schema)
	return string(text), err
}

// findTexts finds the types in t that decode themselves: from text, which is a string in
// the schema, or from any JSON.
func findTexts(t reflect.Type, seen map[reflect.Type]bool, found map[reflect.Type]*jsonschema.Schema) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch p := reflect.PointerTo(t); {
	case p.Implements(reflect.TypeFor[json.Unmarshaler]()):
		found[t] = &jsonschema.Schema{}
		return
	case hasUnmarshaler(p):
		found[t] = &jsonschema.Schema{Type: "string"}
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		findTexts(t.Elem(), seen, found)
	case reflect.Struct:
		for i := range t.NumField() {
			findTexts(t.Field(i).Type, seen, found)
		}
	}
}

// markSecrets sets writeOnly, by which others know not to show a value, on the keys whose field
// has the tag secret:"true".
func markSecrets(t reflect.Type, schema *jsonschema.Schema) {
	switch t.Kind() {
	case reflect.Pointer:
		markSecrets(t.Elem(), schema)
	case reflect.Slice, reflect.Array:
		if schema.Items != nil {
			markSecrets(t.Elem(), schema.Items)
		}
	case reflect.Map:
		if schema.AdditionalProperties != nil {
			markSecrets(t.Elem(), schema.AdditionalProperties)
		}
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			property := schema.Properties[cmp.Or(name, field.Name)]
			if property == nil {
				continue
			}
			property = property.CloneSchemas() // fields of one type may share theirs
			markSecrets(field.Type, property)
			property.WriteOnly = property.WriteOnly || field.Tag.Get("secret") == "true"
			schema.Properties[cmp.Or(name, field.Name)] = property
		}
	}
}

// relax makes all keys optional, since absent ones keep their defaults, and adds the
// defaults to the schema.
func relax(schema *jsonschema.Schema, defaults json.RawMessage) {
	schema.Required = nil
	if schema.Items != nil {
		relax(schema.Items, nil)
	}
	var values map[string]json.RawMessage
	if len(schema.Properties) > 0 {
		_ = json.Unmarshal(defaults, &values) // not an object: no defaults
	} else if schema.AdditionalProperties != nil && schema.AdditionalProperties.Not == nil {
		relax(schema.AdditionalProperties, nil)
	}
	for name, property := range schema.Properties {
		if property.WriteOnly {
			delete(values, name)
		}
		relax(property, values[name])
	}
	if len(schema.Properties) == 0 && len(defaults) > 0 && string(defaults) != "null" {
		schema.Default = defaults
	}
}

// checkConfig returns what is wrong with the type or the defaults of Config.
func (s Stage) checkConfig() error {
	if _, err := s.configSchema(); err != nil {
		return fmt.Errorf("Stage.Config: %w", err)
	}
	return nil
}
