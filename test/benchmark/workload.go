package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	namespace = "benchmark"
	inFlight  = 8
)

// bench is the state that the workloads share.
type bench struct {
	o       options
	srv     *server
	json    *kubernetes.Clientset
	proto   *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	serial  atomic.Int64
}

// workload is one kind of request. Count is how many of o.requests it makes.
type workload struct {
	name   string
	weight int // how many requests of o.requests one of these counts for
	do     func(context.Context, *bench) error
}

var workloads = []workload{
	{"GET", 1, func(ctx context.Context, b *bench) error {
		_, err := b.json.CoreV1().ConfigMaps(namespace).Get(ctx, "seed-0", metav1.GetOptions{})
		return err
	}},
	{"GET resourceVersion=0", 1, func(ctx context.Context, b *bench) error {
		_, err := b.json.CoreV1().ConfigMaps(namespace).Get(ctx, "seed-0", metav1.GetOptions{ResourceVersion: "0"})
		return err
	}},
	{"LIST 500 JSON", 20, func(ctx context.Context, b *bench) error { return b.list(ctx, b.json) }},
	{"LIST 500 protobuf", 20, func(ctx context.Context, b *bench) error { return b.list(ctx, b.proto) }},
	{"CREATE", 1, func(ctx context.Context, b *bench) error {
		_, err := b.json.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(b.unique("created")), metav1.CreateOptions{})
		return err
	}},
	{"PATCH", 1, func(ctx context.Context, b *bench) error {
		n := b.serial.Add(1)
		_, err := b.json.CoreV1().ConfigMaps(namespace).Patch(ctx, fmt.Sprintf("seed-%d", n%100), types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
		return err
	}},
	{"server-side apply", 1, func(ctx context.Context, b *bench) error {
		n := b.serial.Add(1)
		name := fmt.Sprintf("applied-%d", n%100)
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"n":"%d"}}`, name, n)
		_, err := b.json.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "benchmark", Force: new(true)})
		return err
	}},
	{"custom resource GET", 1, func(ctx context.Context, b *bench) error {
		_, err := b.dynamic.Resource(widgets).Namespace(namespace).Get(ctx, "seed", metav1.GetOptions{})
		return err
	}},
	{"custom resource CREATE", 1, func(ctx context.Context, b *bench) error {
		_, err := b.dynamic.Resource(widgets).Namespace(namespace).Create(ctx, widget(b.unique("widget")), metav1.CreateOptions{})
		return err
	}},
	{"404", 1, func(ctx context.Context, b *bench) error {
		_, err := b.json.CoreV1().ConfigMaps(namespace).Get(ctx, "missing", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("want not found, got %v", err)
	}},
}

func (b *bench) unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, b.serial.Add(1)) }

func (b *bench) list(ctx context.Context, c *kubernetes.Clientset) error {
	l, err := c.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 500})
	if err == nil && len(l.Items) != 500 {
		return fmt.Errorf("listed %d of 500", len(l.Items))
	}
	return err
}

// runWorkloads fills the store and runs every workload o.rounds times.
func runWorkloads(ctx context.Context, o options, srv *server, add func(string, float64)) error {
	b, err := newBench(o, srv)
	if err != nil {
		return err
	}
	if err := b.seed(ctx); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := settle(ctx, srv); err != nil {
		return err
	}
	add(fmt.Sprintf("memory with %d ConfigMaps, MiB", o.configMaps), float64(srv.memory())/(1<<20))
	for range o.rounds {
		for _, w := range workloads {
			n := max(o.requests/w.weight, inFlight)
			cpu, took, err := b.round(ctx, n, w.do)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			add(w.name+", CPU µs per request", float64(cpu.Microseconds())/float64(n))
			add(w.name+", requests per second", float64(n)/took.Seconds())
		}
		if err := b.fanOut(ctx, add); err != nil {
			return fmt.Errorf("watch fan-out: %w", err)
		}
	}
	if o.profiles == "" {
		return nil
	}
	for _, w := range workloads {
		if err := b.profile(ctx, w.name, w.do); err != nil {
			return err
		}
	}
	return b.profile(ctx, "watch fan-out", func(ctx context.Context, b *bench) error {
		return b.fanOut(ctx, func(string, float64) {})
	})
}

// round makes n requests, inFlight at a time, and returns what they cost the
// server and how long they took.
func (b *bench) round(ctx context.Context, n int, do func(context.Context, *bench) error) (cpu, took time.Duration, err error) {
	before, began := b.srv.cpu(), time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, inFlight)
	for range inFlight {
		go func() {
			for left.Add(-1) >= 0 {
				if err := do(ctx, b); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range inFlight {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return b.srv.cpu() - before, time.Since(began), err
}

// fanOut opens o.watchers watches of one object and measures the cost of its changes.
func (b *bench) fanOut(ctx context.Context, add func(string, float64)) error {
	const changes = 50
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	got := make(chan struct{}, b.o.watchers*changes)
	var open sync.WaitGroup
	for range b.o.watchers {
		w, err := b.json.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=fanned"})
		if err != nil {
			return err
		}
		open.Go(func() {
			for range w.ResultChan() {
				got <- struct{}{}
			}
		})
		defer w.Stop()
	}
	before, began := b.srv.cpu(), time.Now()
	for i := range changes {
		body := fmt.Appendf(nil, `{"data":{"n":"%d-%d"}}`, i, b.serial.Add(1))
		if _, err := b.json.CoreV1().ConfigMaps(namespace).Patch(ctx, "fanned", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	// The first events may be those of the initial state.
	for range b.o.watchers * changes {
		select {
		case <-got:
		case <-time.After(time.Minute):
			return fmt.Errorf("events are missing")
		}
	}
	events := float64(b.o.watchers * changes)
	add(fmt.Sprintf("watch fan-out to %d, CPU µs per event", b.o.watchers), float64((b.srv.cpu()-before).Microseconds())/events)
	add(fmt.Sprintf("watch fan-out to %d, events per second", b.o.watchers), events/time.Since(began).Seconds())
	return nil
}

func newBench(o options, srv *server) (*bench, error) {
	b := &bench{o: o, srv: srv}
	var err error
	if b.json, err = kubernetes.NewForConfig(srv.config); err != nil {
		return nil, err
	}
	proto := rest.CopyConfig(srv.config)
	proto.ContentType = "application/vnd.kubernetes.protobuf"
	if b.proto, err = kubernetes.NewForConfig(proto); err != nil {
		return nil, err
	}
	b.dynamic, err = dynamic.NewForConfig(srv.config)
	return b, err
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

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
