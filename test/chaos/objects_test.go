package chaos

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func valueOf(o unstructured.Unstructured) string {
	if value, ok, _ := unstructured.NestedString(o.Object, "spec", "reference"); ok {
		return value // of a Flunder
	}
	value, _, _ := unstructured.NestedString(o.Object, "data", "value")
	return value
}

func newFlunder(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": wardle + "/v1alpha1", "kind": "Flunder", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"reference": value},
	}}
}

func newConfigMap(name, value string) *unstructured.Unstructured {
	return newObject("v1", "ConfigMap", name, value)
}

func newWidget(name, value string) *unstructured.Unstructured {
	return newObject("example.com/v1", "Widget", name, value)
}

func newObject(version, kind, name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name},
		"data": map[string]any{"value": value},
	}}
}

func widgetCRD() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"kind": "Widget", "plural": "widgets"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"data": map[string]any{
						"type": "object", "properties": map[string]any{"value": map[string]any{"type": "string"}},
					}},
				}},
			}},
		},
	}}
}
