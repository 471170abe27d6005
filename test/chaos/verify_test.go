package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// watch starts an informer for each resource that is written.
func (c *clients) watch(ctx context.Context) error {
	for _, gvr := range c.written {
		s := newStream()
		if !c.fleet { // whose hosts die
			s.ended = func(r request) { c.watchEnded(failure{request: r, what: gvr.Resource}) }
		}
		lw := s.listWatch(c.informed.Resource(gvr).Namespace(namespace))
		informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, c.informed), &unstructured.Unstructured{}, 0, nil)
		c.stores[gvr], c.streams[gvr] = informer.GetStore(), s
		go informer.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("informer of %s did not sync", gvr.Resource)
		}
	}
	return nil
}

// verify compares the acknowledged writes with the stored objects, and both with the
// objects of the informers and the events that they received.
func (c *clients) verify(ctx context.Context) error {
	errs := []error{c.history.check()}
	for gvr, store := range c.stores {
		list, err := c.dynamic.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		stored, created := map[string]unstructured.Unstructured{}, map[string]string{}
		for _, o := range list.Items {
			stored[o.GetName()] = o
			id := o.GetLabels()[creation]
			if twin, ok := created[id]; ok && id != "" {
				errs = append(errs, fmt.Errorf("one create request has made two %s, %s and %s", gvr.Resource, twin, o.GetName()))
			}
			created[id] = o.GetName()
		}
		errs = append(errs, c.verifyWrites(gvr, stored), verifyInformer(gvr, store, stored), c.verifyEvents(gvr, stored))
	}
	return errors.Join(errs...)
}

func (c *clients) verifyWrites(gvr schema.GroupVersionResource, stored map[string]unstructured.Unstructured) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for o, value := range c.acknowledged {
		if o.resource != gvr {
			continue
		}
		n++
		got := gone
		if s, ok := stored[o.name]; ok {
			got = valueOf(s)
		}
		if got != value && !slices.Contains(c.maybe[o], got) {
			return fmt.Errorf("%s %s has the value %q, acknowledged was %q", gvr.Resource, o.name, got, value)
		}
	}
	if n < 10 {
		return fmt.Errorf("only %d %s were written", n, gvr.Resource)
	}
	return nil
}

// verifyInformer waits until the informer has all stored objects as they are.
func verifyInformer(gvr schema.GroupVersionResource, store cache.Store, stored map[string]unstructured.Unstructured) error {
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = same(store, stored); err == nil {
			return nil
		}
	}
	return fmt.Errorf("informer of %s: %w", gvr.Resource, err)
}

// verifyEvents compares the acknowledged writes with the events that the informer received.
// It has received all by now.
func (c *clients) verifyEvents(gvr schema.GroupVersionResource, stored map[string]unstructured.Unstructured) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[gvr]
	var errs []error
	for writer, changes := range c.changes[gvr] {
		if err := s.missed(changes, stored); err != nil {
			errs = append(errs, fmt.Errorf("informer of %s, %s: %w", gvr.Resource, writer, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := first(s.problems); err != nil {
		errs = append(errs, fmt.Errorf("informer of %s: %w", gvr.Resource, err))
	}
	return errors.Join(errs...)
}

func same(store cache.Store, stored map[string]unstructured.Unstructured) error {
	for name, o := range stored {
		item, ok, err := store.GetByKey(namespace + "/" + name)
		if err != nil || !ok {
			return fmt.Errorf("has not seen %s (%v)", name, err)
		}
		if got := item.(*unstructured.Unstructured).GetResourceVersion(); got != o.GetResourceVersion() {
			return fmt.Errorf("has %s at version %s, stored is %s", name, got, o.GetResourceVersion())
		}
	}
	if n := len(store.ListKeys()); n != len(stored) {
		return fmt.Errorf("has %d objects, %d are stored", n, len(stored))
	}
	return nil
}
