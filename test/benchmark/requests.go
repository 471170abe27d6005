package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

const (
	namespace = "benchmark"
	// listed is the number of objects of a LIST.
	listed = 500
	// changed is the number of objects that PATCH and apply take turns with.
	changed = 100
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// request is a row of which each round makes many requests.
type request struct {
	name string
	// weight is for how many of -requests one of these counts.
	weight int
	// alone holds for a row with one request at a time.
	alone bool
	do    func(context.Context, *system, *load.Client) error
}

func requests() []request {
	return []request{
		{name: "GET", weight: 1, do: get},
		{name: "GET rv=0", weight: 1, do: getCached},
		{name: "GET, one client", weight: 4, alone: true, do: get},
		{name: "LIST 500 JSON", weight: 20, do: func(ctx context.Context, _ *system, c *load.Client) error { return list(ctx, c.JSON) }},
		{name: "LIST 500 protobuf", weight: 20, do: func(ctx context.Context, _ *system, c *load.Client) error { return list(ctx, c.Proto) }},
		{name: "CREATE", weight: 1, do: create},
		{name: "PATCH", weight: 1, do: patch},
		{name: "apply", weight: 1, do: apply},
		{name: "custom resource GET", weight: 1, do: getWidget},
		{name: "custom resource CREATE", weight: 1, do: createWidget},
		{name: "unknown group", weight: 1, do: getUnknown},
		{name: "missing object", weight: 1, do: getMissing},
	}
}

func get(ctx context.Context, _ *system, c *load.Client) error {
	_, err := c.JSON.CoreV1().ConfigMaps(namespace).Get(ctx, seeded(0), metav1.GetOptions{})
	return err
}

func getCached(ctx context.Context, _ *system, c *load.Client) error {
	_, err := c.JSON.CoreV1().ConfigMaps(namespace).Get(ctx, seeded(0), metav1.GetOptions{ResourceVersion: "0"})
	return err
}

func list(ctx context.Context, c *kubernetes.Clientset) error {
	l, err := c.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: listed})
	if err == nil && len(l.Items) != listed {
		return fmt.Errorf("listed %d of %d", len(l.Items), listed)
	}
	return err
}

func create(ctx context.Context, s *system, c *load.Client) error {
	_, err := c.JSON.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(s.unique("created")), metav1.CreateOptions{})
	return err
}

func patch(ctx context.Context, s *system, c *load.Client) error {
	n := s.serial.Add(1)
	_, err := c.JSON.CoreV1().ConfigMaps(namespace).Patch(ctx, seeded(int(n%changed)), types.MergePatchType,
		fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
	return err
}

func apply(ctx context.Context, s *system, c *load.Client) error {
	n := s.serial.Add(1)
	name := fmt.Sprintf("applied-%d", n%changed)
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"n":"%d"}}`, name, n)
	_, err := c.JSON.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "benchmark", Force: new(true)})
	return err
}

func getWidget(ctx context.Context, _ *system, c *load.Client) error {
	_, err := c.Dynamic.Resource(widgets).Namespace(namespace).Get(ctx, "seed", metav1.GetOptions{})
	return err
}

func createWidget(ctx context.Context, s *system, c *load.Client) error {
	_, err := c.Dynamic.Resource(widgets).Namespace(namespace).Create(ctx, widget(s.unique("widget")), metav1.CreateOptions{})
	return err
}

// getUnknown uses net/http alone, so that not all rows have client-go's share of the processor.
func getUnknown(ctx context.Context, _ *system, c *load.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/apis/unknown.example.com/v1/things", nil)
	if err != nil {
		return err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		return fmt.Errorf("want not found, have %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func getMissing(ctx context.Context, _ *system, c *load.Client) error {
	_, err := c.JSON.CoreV1().ConfigMaps(namespace).Get(ctx, "missing", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("want not found, have %v", err)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "benchmark"}},
		Data:       map[string]string{"key": "some configuration that is not very long", "other": "value"},
	}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(3)},
	}}
}
