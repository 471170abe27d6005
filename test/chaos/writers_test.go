package chaos

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// writes is how often an object is written. The last write of every other object is
	// its deletion; gone is the value of a deleted one.
	writes = 8
	gone   = "gone"
	// creation is the label of the objects that a creator has made: the number of its request.
	creation = "creation"
)

// writer creates objects, updates each a few times and deletes some.
func (c *clients) writer(gvr schema.GroupVersionResource, id int, make func(name, value string) *unstructured.Unstructured) func(context.Context, int) error {
	client, writer := c.dynamic.Resource(gvr).Namespace(namespace), fmt.Sprint("writer ", id)
	return func(ctx context.Context, n int) error {
		o := object{gvr, fmt.Sprintf("w%d-%d", id, n/writes)}
		value := fmt.Sprint(n % writes)
		u := make(o.name, value)
		var stored *unstructured.Unstructured
		var err error
		switch known := c.known(o); {
		case known && n%writes == writes-1 && n/writes%2 == 0:
			value = gone
			err = client.Delete(ctx, o.name, metav1.DeleteOptions{})
		case known:
			stored, err = client.Apply(ctx, o.name, u, metav1.ApplyOptions{FieldManager: "chaos", Force: true})
		default:
			stored, err = client.Create(ctx, u, metav1.CreateOptions{})
		}
		c.wrote(o, value, err)
		if err == nil {
			c.changed(gvr, writer, o.name, value, stored)
		}
		if apierrors.IsAlreadyExists(err) && c.uncertain(o) {
			return nil // an earlier attempt without a response had been executed
		}
		return err
	}
}

// creator makes objects whose names the server generates: a request that is executed twice
// makes two.
func (c *clients) creator(gvr schema.GroupVersionResource, make func(name, value string) *unstructured.Unstructured) func(context.Context, int) error {
	client := c.dynamic.Resource(gvr).Namespace(namespace)
	return func(ctx context.Context, n int) error {
		u := make("", "0")
		u.SetGenerateName("c-")
		u.SetLabels(map[string]string{creation: fmt.Sprint(n)})
		stored, err := client.Create(ctx, u, metav1.CreateOptions{})
		if err == nil {
			c.changed(gvr, "creator", stored.GetName(), "0", stored)
		}
		return err
	}
}

func (c *clients) known(o object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.acknowledged[o]
	return ok
}

func (c *clients) uncertain(o object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.maybe[o]) > 1
}

func (c *clients) wrote(o object, value string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.acknowledged[o] = value
		if !c.fleet {
			delete(c.maybe, o)
		}
		return
	}
	c.maybe[o] = append(c.maybe[o], value)
}

// changed records an acknowledged write. A deletion has no stored object.
func (c *clients) changed(gvr schema.GroupVersionResource, writer, name, value string, stored *unstructured.Unstructured) {
	made := change{name: name, value: value}
	if stored != nil {
		made.version, _ = strconv.ParseUint(stored.GetResourceVersion(), 10, 64)
		made.uid = stored.GetUID()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes[gvr][writer] = append(c.changes[gvr][writer], made)
}
