package schemas

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// extensionsOfType and extensionsOfField are the markers that become extensions.
var (
	extensionsOfType  = map[string]string{"structType": "x-kubernetes-map-type", "mapType": "x-kubernetes-map-type"}
	extensionsOfField = map[string]string{
		"listType": "x-kubernetes-list-type", "structType": "x-kubernetes-map-type", "mapType": "x-kubernetes-map-type",
		"patchStrategy": "x-kubernetes-patch-strategy", "patchMergeKey": "x-kubernetes-patch-merge-key",
	}
)

// object is the schema of a struct in the making.
type object struct {
	*builder
	schema       spec.Schema
	dependencies []string
}

// addFields adds the fields of t, and those of structs that t embeds.
func (o *object) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && dereferenced(f.Type).Kind() == reflect.Struct:
			o.addFields(dereferenced(f.Type))
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			o.addField(t, f, name, slices.Contains(strings.Split(options, ","), "omitempty"))
		}
	}
}

func (o *object) addField(t reflect.Type, f reflect.StructField, name string, omitEmpty bool) {
	doc := o.docs.ofField(t, f, name)
	s := o.schemaOf(f.Type)
	s.Description = doc.text
	if !omitEmpty || f.Type.Kind() == reflect.Struct {
		s.Default = zero(f.Type)
	}
	if text := doc.markers.get("default"); text != "" {
		var value any
		if json.Unmarshal([]byte(text), &value) == nil {
			s.Default = value
		}
	}
	for marker, extension := range extensionsOfField {
		value := doc.markers.get(marker)
		if value == "" {
			value = f.Tag.Get(marker)
		}
		if value != "" {
			s.AddExtension(extension, value)
		}
	}
	if keys := doc.markers["listMapKey"]; len(keys) > 0 {
		s.AddExtension("x-kubernetes-list-map-keys", toAny(keys))
	}
	if o.schema.Properties == nil {
		o.schema.Properties = map[string]spec.Schema{}
	}
	o.schema.Properties[name] = s
	_, optional := doc.markers["optional"]
	_, required := doc.markers["required"]
	if required || !optional && !omitEmpty {
		o.schema.Required = append(o.schema.Required, name)
	}
}

// schemaOf returns the schema of a value of type t: a reference, if t is a struct.
func (o *object) schemaOf(t reflect.Type) spec.Schema {
	t = dereferenced(t)
	switch t.Kind() {
	case reflect.Struct:
		if t.PkgPath() == "time" {
			return simple("time.Time")
		}
		name := o.define(t)
		if !slices.Contains(o.dependencies, name) {
			o.dependencies = append(o.dependencies, name)
		}
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: o.ref(name)}}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return simple("[]byte")
		}
		items := o.schemaOf(t.Elem())
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &items}}}
	case reflect.Map:
		values := o.schemaOf(t.Elem())
		return spec.Schema{SchemaProps: spec.SchemaProps{
			Type: []string{"object"}, AdditionalProperties: &spec.SchemaOrBool{Allows: true, Schema: &values},
		}}
	case reflect.Interface:
		return simple("interface{}")
	default:
		return simple(t.Kind().String())
	}
}

func simple(name string) spec.Schema {
	kind, format := common.OpenAPITypeFormat(name)
	return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{kind}, Format: format}}
}

// zero is the value that an absent field of type t has; nil if it has none in JSON.
func zero(t reflect.Type) any {
	if _, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array, reflect.Interface:
		return nil
	case reflect.Struct:
		if t.NumField() == 1 && t.Field(0).Anonymous {
			return zero(t.Field(0).Type)
		}
		return map[string]any{}
	}
	value, _ := common.OpenAPIZeroValue(t.Kind().String())
	return value
}

func toAny(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}
