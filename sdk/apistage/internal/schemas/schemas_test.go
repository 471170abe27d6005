package schemas_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/catena-dev/catena/sdk/apistage/internal/schemas"
)

func ref(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }

// markersOnly are in comments that these types' source has, and reflection cannot see.
var markersOnly = []string{"x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "enum"}

// plain returns a schema as JSON without what comes from markers: those above, and
// which fields are optional or have defaults although their tags do not say so.
//
// The types of apiextensions and Time have no SwaggerDoc.
func plain(t *testing.T, name string, s spec.Schema) any {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	strip(value, strings.Contains(name, "apiextensions-apiserver") || strings.HasSuffix(name, ".Time"))
	return value
}

func strip(value any, descriptions bool) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range append(markersOnly, "required") {
			delete(v, key)
		}
		if _, ok := v["description"].(string); ok && descriptions {
			delete(v, "description")
		}
		if text, ok := v["description"].(string); ok {
			v["description"] = strings.Join(strings.Fields(text), " ")
		}
		for _, inner := range v {
			strip(inner, descriptions)
		}
	case []any:
		for _, inner := range v {
			strip(inner, descriptions)
		}
	}
}

// Reflection finds what openapi-gen has found in Kubernetes' sources.
func TestAsGenerated(t *testing.T) {
	t.Parallel()
	generated := openapi.GetOpenAPIDefinitions(ref)
	reflected := schemas.Definitions(nil, nil,
		reflect.TypeFor[autoscalingv1.Scale](), reflect.TypeFor[autoscalingv1.HorizontalPodAutoscalerList](),
		reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.ListMeta](), reflect.TypeFor[metav1.LabelSelector](), reflect.TypeFor[metav1.Status](),
		reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](),
	)(ref)
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(reflected)) {
		want, ok := generated[name]
		if !ok {
			t.Errorf("%s is not generated", name)
			continue
		}
		compared++
		if strings.HasSuffix(name, ".ScaleSpec") { // has the marker default
			delete(want.Schema.Properties, "replicas")
			delete(reflected[name].Schema.Properties, "replicas")
		}
		if difference := cmp.Diff(plain(t, name, want.Schema), plain(t, name, reflected[name].Schema)); difference != "" {
			t.Errorf("%s (-generated +reflected):\n%s", name, difference)
		}
		if want, got := sorted(want), sorted(reflected[name]); !slices.Equal(want, got) {
			t.Errorf("dependencies of %s are %q, want %q", name, got, want)
		}
	}
	if compared < 30 {
		t.Errorf("only %d definitions have been compared", compared)
	}
}

func sorted(d common.OpenAPIDefinition) []string { return slices.Sorted(slices.Values(d.Dependencies)) }

const source = `package x

// Thing is a thing.
//
// Second paragraph,
// in two lines.
// +structType=atomic
type Thing struct {
	// Name has no tag, and so Go's name.
	Name string
	// Labels are not to be left out. TODO is not a line of its own.
	// TODO: this is
	Labels map[string]string ` + "`json:\"labels\"`" + `
	// Color is optional.
	// +optional
	// +default="red"
	Color string ` + "`json:\"color\"`" + `
	// Both keys count.
	// +listType=map
	// +listMapKey=host
	// +listMapKey=port
	Ports []Port ` + "`json:\"ports,omitempty\"`" + `
	Data []byte ` + "`json:\"data,omitempty\"`" + `
	Self *Thing ` + "`json:\"self,omitempty\"`" + `
	Hidden string ` + "`json:\"-\"`" + `
	secret string
}
`

type Port struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

type Thing struct {
	Name   string
	Labels map[string]string `json:"labels"`
	Color  string            `json:"color"`
	Ports  []Port            `json:"ports,omitempty"`
	Data   []byte            `json:"data,omitempty"`
	Self   *Thing            `json:"self,omitempty"`
	Hidden string            `json:"-"`
	secret string
}

func TestComments(t *testing.T) {
	t.Parallel()
	docs, err := schemas.ParseDocs(source)
	if err != nil {
		t.Fatal(err)
	}
	_ = Thing{}.secret
	name := schemas.Name(reflect.TypeFor[Thing]())
	thing := schemas.Definitions(nil, docs, reflect.TypeFor[*Thing]())(ref)[name].Schema
	text, _ := json.MarshalIndent(thing, "", " ")
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	properties := got["properties"].(map[string]any)
	want := map[string]any{
		"Name":   map[string]any{"type": "string", "default": "", "description": "Name has no tag, and so Go's name."},
		"labels": map[string]any{"type": "object", "description": "Labels are not to be left out. TODO is not a line of its own.", "additionalProperties": map[string]any{"type": "string"}},
		"color":  map[string]any{"type": "string", "default": "red", "description": "Color is optional."},
		"ports": map[string]any{
			"type": "array", "description": "Both keys count.", "items": map[string]any{"$ref": "#/definitions/" + schemas.Name(reflect.TypeFor[Port]())},
			"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"host", "port"},
		},
		"data": map[string]any{"type": "string", "format": "byte"},
		"self": map[string]any{"$ref": "#/definitions/" + name},
	}
	if difference := cmp.Diff(want, properties); difference != "" {
		t.Errorf("properties (-want +got):\n%s", difference)
	}
	if want := []any{"Name", "labels"}; !cmp.Equal(want, got["required"]) {
		t.Errorf("required are %v, want %v", got["required"], want)
	}
	if got["description"] != "Thing is a thing.\n\nSecond paragraph, in two lines." || got["x-kubernetes-map-type"] != "atomic" {
		t.Errorf("description %q, map type %v", got["description"], got["x-kubernetes-map-type"])
	}
}

func TestSourceThatIsNoGo(t *testing.T) {
	t.Parallel()
	if _, err := schemas.ParseDocs("type T struct {}"); err == nil {
		t.Error("no error")
	}
}
