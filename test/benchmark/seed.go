package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// seed creates the objects that the workloads use.
func (b *bench) seed(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := b.json.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := b.seedWidgets(ctx); err != nil {
		return err
	}
	if _, err := b.json.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("fanned"), metav1.CreateOptions{}); err != nil {
		return err
	}
	_, _, err := b.round(ctx, b.o.configMaps, func(ctx context.Context, b *bench) error {
		_, err := b.proto.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(fmt.Sprintf("seed-%d", b.serial.Add(1)-1)), metav1.CreateOptions{})
		return err
	})
	return err
}

func (b *bench) seedWidgets(ctx context.Context) error {
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
	if _, err := b.dynamic.Resource(crds).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := b.dynamic.Resource(widgets).Namespace(namespace).Create(ctx, widget("seed"), metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// settle waits until the server has been nearly idle for a second, so that its
// start and the seeding do not affect the next measurement.
func settle(ctx context.Context, srv *server) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for before := srv.cpu(); ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not become idle")
		case <-time.After(time.Second):
		}
		now := srv.cpu()
		if now-before < 150*time.Millisecond {
			return nil
		}
		before = now
	}
}
