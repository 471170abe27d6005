package apistage_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func testStatus(t *testing.T, s *served) {
	ctx := t.Context()
	made, err := s.client.Create(ctx, widget(t, "status", "spec: {replicas: 1}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = unstructured.SetNestedField(made.Object, int64(1), "status", "ready")
	_ = unstructured.SetNestedField(made.Object, int64(9), "spec", "replicas")
	made.SetLabels(map[string]string{"not": "here"})
	after, err := s.client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at(after, "status", "ready") != int64(1) || at(after, "spec", "replicas") != int64(1) || len(after.GetLabels()) != 0 || after.GetGeneration() != 1 {
		t.Errorf("after an update of the status: %v", after.Object)
	}
	_ = unstructured.SetNestedField(after.Object, int64(5), "status", "ready")
	_ = unstructured.SetNestedField(after.Object, int64(2), "spec", "replicas")
	after, err = s.client.Update(ctx, after, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at(after, "status", "ready") != int64(1) || at(after, "spec", "replicas") != int64(2) || after.GetGeneration() != 2 {
		t.Errorf("after an update of the object: %v", after.Object)
	}
	applied, err := s.client.ApplyStatus(ctx, "status", widget(t, "status", "status: {ready: 2}"), metav1.ApplyOptions{FieldManager: "controller", Force: true})
	if err != nil || at(applied, "status", "ready") != int64(2) {
		t.Errorf("apply of the status: %v (%v)", applied, err)
	}
}

func testScale(t *testing.T, s *served) {
	ctx := t.Context()
	if _, err := s.client.Apply(ctx, "scaled", widget(t, "scaled", "spec: {replicas: 1}"), metav1.ApplyOptions{FieldManager: "author"}); err != nil {
		t.Fatal(err)
	}
	path := "/apis/widgets.test/v1/namespaces/default/widgets/scaled/scale"
	code, body := s.do(t, http.MethodPatch, path, `{"spec":{"replicas":4}}`, "Content-Type", "application/merge-patch+json")
	var scale autoscalingv1.Scale
	if err := json.Unmarshal([]byte(body), &scale); err != nil || code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	if scale.Spec.Replicas != 4 || scale.Status.Selector != "widget=scaled" || scale.Kind != "Scale" || scale.APIVersion != "autoscaling/v1" {
		t.Errorf("scale is %+v", scale)
	}
	o, err := s.client.Get(ctx, "scaled", metav1.GetOptions{})
	if err != nil || at(o, "spec", "replicas") != int64(4) {
		t.Errorf("object is %v (%v)", o, err)
	}
	// The field has another owner now.
	_, err = s.client.Apply(ctx, "scaled", widget(t, "scaled", "spec: {replicas: 1}"), metav1.ApplyOptions{FieldManager: "author"})
	if !apierrors.IsConflict(err) {
		t.Errorf("apply after scale: %v", err)
	}
	if code, body := s.do(t, http.MethodPatch, path, `{"spec":{"replicas":-4}}`, "Content-Type", "application/merge-patch+json"); code != http.StatusUnprocessableEntity {
		t.Errorf("status %d: %s", code, body)
	}
}

func testAction(t *testing.T, s *served) {
	ctx := t.Context()
	if _, err := s.client.Create(ctx, widget(t, "painted", "spec: {replicas: 1}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path := "/apis/widgets.test/v1/namespaces/default/widgets/painted/paint"
	code, body := s.do(t, http.MethodPost, path, `{"apiVersion":"widgets.test/v1","kind":"Paint","color":"white"}`, "Content-Type", "application/json")
	if code != http.StatusCreated || !strings.Contains(body, `"color":"white"`) || !strings.Contains(body, `"kind":"Widget"`) {
		t.Errorf("status %d: %s", code, body)
	}
	code, body = s.do(t, http.MethodPost, path+"?dryRun=All", `{"apiVersion":"widgets.test/v1","kind":"Paint","color":"black"}`, "Content-Type", "application/json")
	o, err := s.client.Get(ctx, "painted", metav1.GetOptions{})
	if err != nil || at(o, "spec", "color") != "white" {
		t.Errorf("after a dry run, status %d %s: %v (%v)", code, body, o, err)
	}
	path = strings.Replace(path, "painted", "nowhere", 1)
	if code, body := s.do(t, http.MethodPost, path, `{"apiVersion":"widgets.test/v1","kind":"Paint","color":"white"}`, "Content-Type", "application/json"); code != http.StatusNotFound {
		t.Errorf("status %d: %s", code, body)
	}
}

func testConnect(t *testing.T, s *served) {
	if _, err := s.client.Create(t.Context(), widget(t, "drawn", "spec: {replicas: 1, color: pink}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body := s.get(t, "/apis/widgets.test/v1/namespaces/default/widgets/drawn/picture?title=me")
	if want := `<svg fill="pink">me</svg>`; body != want {
		t.Errorf("response is %q, want %q", body, want)
	}
	_, body = s.do(t, http.MethodPost, "/apis/widgets.test/v1/namespaces/default/widgets/drawn/echo", "hello")
	if want := "drawn: hello"; body != want {
		t.Errorf("response is %q, want %q", body, want)
	}
}

func testDryRun(t *testing.T, s *served) {
	if _, err := s.client.Create(t.Context(), widget(t, "dry", "spec: {replicas: 1}"), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Get(t.Context(), "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run has created it: %v", err)
	}
}

func testMediaTypes(t *testing.T, s *served) {
	body := s.get(t, "/apis/widgets.test/v1/widgets", "Accept", "application/vnd.kubernetes.protobuf,application/json")
	if !strings.Contains(body, `"kind":"WidgetList"`) {
		t.Errorf("response is %.100q", body)
	}
	if body := s.get(t, "/apis/widgets.test/v1/widgets", "Accept", "application/yaml"); !strings.Contains(body, "kind: WidgetList") {
		t.Errorf("response is %.100q", body)
	}
}
