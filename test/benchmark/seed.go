package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

// seeded is the name of the nth ConfigMap, from 0.
func seeded(n int) string { return fmt.Sprintf("seed-%d", n) }

// seed creates the objects that the rows use, with n ConfigMaps.
func (s *system) seed(ctx context.Context, n int) error {
	if err := s.seedConfigMaps(ctx, n); err != nil {
		return err
	}
	return seedWidgets(ctx, s.clients[0])
}

// seedConfigMaps creates the namespace with n ConfigMaps and the one that is watched.
func (s *system) seedConfigMaps(ctx context.Context, n int) error {
	c := s.clients[0]
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.JSON.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := c.JSON.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(watched), metav1.CreateOptions{}); err != nil {
		return err
	}
	return s.createConfigMaps(ctx, 0, n)
}

// createConfigMaps creates the ConfigMaps from number first up to number end.
func (s *system) createConfigMaps(ctx context.Context, first, end int) error {
	var next atomic.Int64
	next.Store(int64(first))
	_, err := load.Run(ctx, s.clients, inFlight, end-first, func(ctx context.Context, c *load.Client) error {
		name := seeded(int(next.Add(1) - 1))
		_, err := c.Proto.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(name), metav1.CreateOptions{})
		return err
	})
	return err
}

// seedWidgets creates a custom resource and an object of it.
func seedWidgets(ctx context.Context, c *load.Client) error {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"kind": "Widget", "plural": "widgets"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{"spec": map[string]any{
						"type": "object", "properties": map[string]any{"size": map[string]any{"type": "integer"}},
					}},
				}},
			}},
		},
	}}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := c.Dynamic.Resource(crds).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := c.Dynamic.Resource(widgets).Namespace(namespace).Create(ctx, widget("seed"), metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}
