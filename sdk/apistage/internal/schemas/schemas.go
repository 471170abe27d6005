// Package schemas makes OpenAPI definitions of Go types at run time.
//
// Kubernetes generates them from the source of the types. Here reflection gives the
// fields, and the source text, if there is any, the comments and markers. The
// result is what openapi-gen writes for the same types.
package schemas

import (
	"maps"
	"reflect"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Definitions returns the definitions of base and those of types, and of all types
// that they contain, which base does not have.
func Definitions(base common.GetOpenAPIDefinitions, docs Docs, types ...reflect.Type) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		b := &builder{ref: ref, docs: docs, definitions: map[string]common.OpenAPIDefinition{}}
		if base != nil {
			maps.Copy(b.definitions, base(ref))
		}
		for _, t := range types {
			if t = dereferenced(t); t.Kind() == reflect.Struct {
				b.define(t)
			}
		}
		return b.definitions
	}
}

// Name is the name of the definition of t.
func Name(t reflect.Type) string {
	return util.GetCanonicalTypeName(reflect.New(t).Interface())
}

type builder struct {
	ref         common.ReferenceCallback
	docs        Docs
	definitions map[string]common.OpenAPIDefinition
}

// define makes the definition of a struct, once, and returns its name.
func (b *builder) define(t reflect.Type) string {
	name := Name(t)
	if _, ok := b.definitions[name]; ok {
		return name
	}
	b.definitions[name] = common.OpenAPIDefinition{} // for types that contain themselves
	b.definitions[name] = b.definition(t)
	return name
}

func (b *builder) definition(t reflect.Type) common.OpenAPIDefinition {
	if own, ok := ownDefinition(t); ok {
		return own
	}
	s := &object{builder: b, schema: spec.Schema{SchemaProps: spec.SchemaProps{
		Description: b.docs.ofType(t).text,
		Type:        []string{"object"},
	}}}
	s.addFields(t)
	for marker, extension := range extensionsOfType {
		if value := b.docs.ofType(t).markers.get(marker); value != "" {
			s.schema.AddExtension(extension, value)
		}
	}
	return common.OpenAPIDefinition{Schema: s.schema, Dependencies: s.dependencies}
}

// ownDefinition is what a type says about its own form in JSON.
func ownDefinition(t reflect.Type) (common.OpenAPIDefinition, bool) {
	value := reflect.New(t).Interface()
	v2, hasV2 := value.(common.OpenAPIDefinitionGetter)
	v3, hasV3 := value.(common.OpenAPIV3DefinitionGetter)
	switch {
	case hasV2 && hasV3:
		return common.EmbedOpenAPIDefinitionIntoV2Extension(v3.OpenAPIV3Definition(), v2.OpenAPIDefinition()), true
	case hasV2:
		return v2.OpenAPIDefinition(), true
	case hasV3:
		return v3.OpenAPIV3Definition(), true
	}
	if simple, ok := value.(simpleType); ok {
		return common.OpenAPIDefinition{Schema: spec.Schema{SchemaProps: spec.SchemaProps{
			Type:   simple.OpenAPISchemaType(),
			Format: simple.OpenAPISchemaFormat(),
		}}}, true
	}
	return common.OpenAPIDefinition{}, false
}

// simpleType is a type that is no object in JSON, such as metav1.Time.
type simpleType interface {
	OpenAPISchemaType() []string
	OpenAPISchemaFormat() string
}

func dereferenced(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
