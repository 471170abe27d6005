package apistage_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/sdk/apistage/apitest"
)

func stringsReader(s string) io.Reader {
	if s == "" {
		return http.NoBody
	}
	return strings.NewReader(s)
}

// widget parses a manifest without its first two lines.
func widget(t *testing.T, name, rest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	text := "apiVersion: widgets.test/v1\nkind: Widget\nmetadata: {name: " + name + "}\n" + rest
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func at(o *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return value
}

func TestGroup(t *testing.T) {
	t.Parallel()
	s := serveGroup(t, widgets(), apitest.Store(t))
	for name, test := range map[string]func(*testing.T, *served){
		"discovery":            testDiscovery,
		"OpenAPI":              testOpenAPI,
		"defaults, validation": testValidation,
		"tables":               testTables,
		"selectors":            testSelectors,
		"watch":                testWatch,
		"apply":                testApply,
		"status":               testStatus,
		"scale":                testScale,
		"custom verb":          testAction,
		"arbitrary handler":    testConnect,
		"dry run":              testDryRun,
		"no protobuf":          testMediaTypes,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, s) })
	}
}

func testDiscovery(t *testing.T, s *served) {
	client := discovery.NewDiscoveryClientForConfigOrDie(s.config)
	list, err := client.ServerResourcesForGroupVersion("widgets.test/v1")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		names[r.Name] = r
	}
	for _, want := range []string{"widgets", "widgets/status", "widgets/scale", "widgets/paint", "widgets/picture"} {
		if _, ok := names[want]; !ok {
			t.Errorf("%s is missing in %v", want, list.APIResources)
		}
	}
	w := names["widgets"]
	if w.Kind != "Widget" || w.SingularName != "widget" || !w.Namespaced || !slices.Equal(w.ShortNames, []string{"wd"}) || !slices.Equal(w.Categories, []string{"all"}) {
		t.Errorf("widgets is %+v", w)
	}
	for _, verb := range []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} {
		if !slices.Contains(w.Verbs, verb) {
			t.Errorf("verb %s is missing in %v", verb, w.Verbs)
		}
	}
	if scale := names["widgets/scale"]; scale.Group != "autoscaling" || scale.Kind != "Scale" {
		t.Errorf("widgets/scale is %+v", scale)
	}
}

func testOpenAPI(t *testing.T, s *served) {
	v3 := s.get(t, "/openapi/v3/apis/widgets.test/v1")
	var document struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal([]byte(v3), &document); err != nil {
		t.Fatalf("%v in %.300s", err, v3)
	}
	for _, want := range []string{
		`"x-kubernetes-group-version-kind":[{"group":"widgets.test","kind":"Widget","version":"v1"}]`,
		`"description":"Color is the name of a color.\n\nIt is red if it is left out."`,
		`"x-kubernetes-list-map-keys":["name"]`, `"x-kubernetes-list-type":"map"`, `"x-kubernetes-list-type":"set"`,
		`/apis/widgets.test/v1/namespaces/{namespace}/widgets/{name}/paint`,
		`com.github.catena-dev.catena.sdk.apistage_test.WidgetSpec`,
	} {
		if !strings.Contains(v3, want) {
			t.Errorf("OpenAPI v3 has no %s", want)
		}
	}
	if strings.Contains(v3, "__internal") {
		t.Error("OpenAPI v3 shows the internal version")
	}
	if v2 := s.get(t, "/openapi/v2"); !strings.Contains(v2, `"Parts are what it is made of."`) {
		t.Error("OpenAPI v2 has no descriptions")
	}
}

func testValidation(t *testing.T, s *served) {
	ctx := t.Context()
	made, err := s.client.Create(ctx, widget(t, "valid", "spec: {replicas: 2}\nstatus: {ready: 7}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at(made, "spec", "color") != "red" || at(made, "status", "ready") != nil || made.GetGeneration() != 1 || made.GetUID() == "" {
		t.Errorf("created is %v", made.Object)
	}
	_, err = s.client.Create(ctx, widget(t, "invalid", "spec: {replicas: -1}"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.replicas: Invalid value: -1: must not be negative") {
		t.Errorf("error is %v", err)
	}
	_, err = s.client.Create(ctx, widget(t, "Not_a_name", "spec: {replicas: 1}"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("error is %v", err)
	}
	_, err = s.client.Create(ctx, widget(t, "strict", "spec: {replicas: 1, colour: red}"), metav1.CreateOptions{FieldValidation: "Strict"})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.colour"`) {
		t.Errorf("error is %v", err)
	}
	gold, err := s.client.Create(ctx, widget(t, "gold", "spec: {replicas: 1, color: gold}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = unstructured.SetNestedField(gold.Object, "red", "spec", "color")
	if _, err := s.client.Update(ctx, gold, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "gold stays gold") {
		t.Errorf("error is %v", err)
	}
	code, body := s.do(t, http.MethodPost, "/apis/widgets.test/v1/namespaces/default/widgets",
		`{"apiVersion":"widgets.test/v1","kind":"Widget","metadata":{"name":"puce"},"spec":{"replicas":1,"color":"puce"}}`, "Content-Type", "application/json")
	if code != http.StatusCreated {
		t.Errorf("status %d: %s", code, body)
	}
}

func testTables(t *testing.T, s *served) {
	if _, err := s.client.Create(t.Context(), widget(t, "row", "spec: {replicas: 3, color: blue}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	body := s.get(t, "/apis/widgets.test/v1/namespaces/default/widgets/row", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	if err := json.Unmarshal([]byte(body), &table); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var headers []string
	for _, c := range table.ColumnDefinitions {
		headers = append(headers, c.Name)
	}
	if want := []string{"Name", "Color", "Replicas", "Age"}; !slices.Equal(headers, want) {
		t.Errorf("columns are %q", headers)
	}
	if cells := table.Rows[0].Cells; cells[0] != "row" || cells[1] != "blue" || cells[2] != 3.0 {
		t.Errorf("cells are %v", cells)
	}
}

func testSelectors(t *testing.T, s *served) {
	for name, rest := range map[string]string{"green-1": "spec: {replicas: 1, color: green}", "green-2": "spec: {replicas: 2, color: green}"} {
		o := widget(t, name, rest)
		o.SetLabels(map[string]string{"number": strings.TrimPrefix(name, "green-")})
		if _, err := s.client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for options, want := range map[metav1.ListOptions]int{
		{FieldSelector: "spec.color=green"}:                            2,
		{FieldSelector: "spec.color=green", LabelSelector: "number=2"}: 1,
		{FieldSelector: "metadata.name=green-1"}:                       1,
	} {
		list, err := s.client.List(t.Context(), options)
		if err != nil || len(list.Items) != want {
			t.Errorf("%v: %d objects, want %d (%v)", options, len(list.Items), want, err)
		}
	}
	if _, err := s.client.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.replicas=1"}); !apierrors.IsBadRequest(err) {
		t.Errorf("unknown field: error is %v", err)
	}
}

func testWatch(t *testing.T, s *served) {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	list, err := s.client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=watched"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=watched", ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := s.client.Create(ctx, widget(t, "watched", "spec: {replicas: 1}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Patch(ctx, "watched", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		select {
		case event := <-w.ResultChan():
			if event.Type != want {
				t.Errorf("event %v, want %s", event, want)
			}
		case <-ctx.Done():
			t.Fatalf("no event %s", want)
		}
	}
}

func testApply(t *testing.T, s *served) {
	apply := func(manager, rest string) *unstructured.Unstructured {
		t.Helper()
		o, err := s.client.Apply(t.Context(), "applied", widget(t, "applied", rest), metav1.ApplyOptions{FieldManager: manager})
		if err != nil {
			t.Fatalf("%s: %v", manager, err)
		}
		return o
	}
	apply("one", "spec: {replicas: 1, parts: [{name: a, weight: 1}], tags: [round]}")
	both := apply("two", "spec: {parts: [{name: b, weight: 2}], tags: [flat]}")
	if parts, _ := at(both, "spec", "parts").([]any); len(parts) != 2 {
		t.Errorf("parts of two managers are %v", parts)
	}
	if tags, _ := at(both, "spec", "tags").([]any); len(tags) != 2 {
		t.Errorf("tags of two managers are %v", tags)
	}
	less := apply("two", "spec: {}")
	if parts, _ := at(less, "spec", "parts").([]any); len(parts) != 1 {
		t.Errorf("parts without the second manager's are %v", parts)
	}
	_, err := s.client.Apply(t.Context(), "applied", widget(t, "applied", "spec: {replicas: 5}"), metav1.ApplyOptions{FieldManager: "three"})
	if !apierrors.IsConflict(err) {
		t.Errorf("apply of another's field: %v", err)
	}
}
