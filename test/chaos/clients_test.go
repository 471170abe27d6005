package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const namespace = "chaos"

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	services   = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	crds       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// clients are the clients of a server, and what they have seen.
type clients struct {
	kube    *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	cancel  context.CancelFunc
	running sync.WaitGroup
	stores  map[schema.GroupVersionResource]cache.Store

	mu sync.Mutex
	// acknowledged has, for each object, the value of its last acknowledged write,
	// and maybe the values of later writes that may have been executed.
	acknowledged map[object]string
	maybe        map[object][]string
	requests     []request
	last         map[string]time.Time // latest begin of a success, by client
	failed       []failure
}

type object struct {
	resource schema.GroupVersionResource
	name     string
}

// request is the time that a request took.
type request struct{ from, to time.Time }

// failure is a request that failed, with all repetitions that client-go makes.
type failure struct {
	request
	what  string
	wrong bool // no failure can excuse this answer
	err   error
}

func startClients(ctx context.Context, config *rest.Config) (*clients, error) {
	config.Timeout = 30 * time.Second
	c := &clients{
		acknowledged: map[object]string{}, maybe: map[object][]string{},
		last: map[string]time.Time{}, stores: map[schema.GroupVersionResource]cache.Store{},
	}
	var err error
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range 2 {
		c.loop(ctx, fmt.Sprintf("writer of ConfigMaps %d", i), c.writer(configMaps, i, newConfigMap))
		c.loop(ctx, fmt.Sprintf("writer of Widgets %d", i), c.writer(widgets, i, newWidget))
	}
	c.loop(ctx, "reader of ConfigMaps", c.reader(configMaps, namespace, "always-there"))
	c.loop(ctx, "reader of APIServices", c.reader(services, "", "v1.apps"))
	c.loop(ctx, "reader of CustomResourceDefinitions", c.reader(crds, "", "widgets.example.com"))
	c.loop(ctx, "whoami", c.whoami)
	c.loop(ctx, "discovery", c.discovery)
	return c, c.watch(ctx)
}

// prepare makes what the clients work with.
func (c *clients) prepare(ctx context.Context) error {
	_, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	seed := newConfigMap("always-there", "0")
	if _, err := c.dynamic.Resource(configMaps).Namespace(namespace).Create(ctx, seed, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := c.dynamic.Resource(crds).Create(ctx, widgetCRD(), metav1.CreateOptions{}); err != nil {
		return err
	}
	for range 300 {
		if _, err = c.dynamic.Resource(widgets).Namespace(namespace).List(ctx, metav1.ListOptions{}); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// watch starts an informer for each resource that is written.
func (c *clients) watch(ctx context.Context) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, namespace, nil)
	for _, gvr := range []schema.GroupVersionResource{configMaps, widgets} {
		c.stores[gvr] = factory.ForResource(gvr).Informer().GetStore()
	}
	// The informers live on when the other clients end, to see the end.
	factory.Start(context.WithoutCancel(ctx).Done())
	for gvr, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("informer of %s did not sync", gvr.Resource)
		}
	}
	return nil
}

// loop calls do again and again and keeps what came of it.
func (c *clients) loop(ctx context.Context, name string, do func(ctx context.Context, n int) error) {
	c.last[name] = time.Time{}
	c.running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			from := time.Now()
			// A request that has begun is finished, so that its outcome is known.
			err := do(context.WithoutCancel(ctx), n)
			c.done(name, request{from, time.Now()}, err)
		}
	})
}

func (c *clients) done(name string, r request, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	if err == nil {
		c.last[name] = r.from
		return
	}
	wrong := apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || errors.Is(err, errWrong)
	c.failed = append(c.failed, failure{request: r, what: name, wrong: wrong, err: err})
}

var errWrong = errors.New("wrong answer")

// writer creates objects and updates each a few times.
func (c *clients) writer(gvr schema.GroupVersionResource, id int, make func(name, value string) *unstructured.Unstructured) func(context.Context, int) error {
	client := c.dynamic.Resource(gvr).Namespace(namespace)
	return func(ctx context.Context, n int) error {
		o := object{gvr, fmt.Sprintf("w%d-%d", id, n/4)}
		value := fmt.Sprint(n % 4)
		u := make(o.name, value)
		var err error
		if c.known(o) {
			_, err = client.Apply(ctx, o.name, u, metav1.ApplyOptions{FieldManager: "chaos", Force: true})
		} else {
			u.SetResourceVersion("")
			_, err = client.Create(ctx, u, metav1.CreateOptions{})
		}
		c.wrote(o, value, err)
		if apierrors.IsAlreadyExists(err) && c.uncertain(o) {
			return nil // an earlier attempt without an answer had been executed
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
		delete(c.maybe, o)
		return
	}
	c.maybe[o] = append(c.maybe[o], value)
}

// reader reads an object that is there all the time.
func (c *clients) reader(gvr schema.GroupVersionResource, ns, name string) func(context.Context, int) error {
	client := c.dynamic.Resource(gvr).Namespace(ns)
	return func(ctx context.Context, _ int) error {
		o, err := client.Get(ctx, name, metav1.GetOptions{})
		if err == nil && o.GetName() != name {
			return fmt.Errorf("%w: object %q instead of %q", errWrong, o.GetName(), name)
		}
		return err
	}
}

func (c *clients) whoami(ctx context.Context, _ int) error {
	r, err := c.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && r.Status.UserInfo.Username != "admin" {
		return fmt.Errorf("%w: the user is %q", errWrong, r.Status.UserInfo.Username)
	}
	return err
}

// discovery reads the document that kubectl begins with.
func (c *clients) discovery(ctx context.Context, _ int) error {
	body, err := c.kube.RESTClient().Get().AbsPath("/apis").DoRaw(ctx)
	if err == nil && len(body) == 0 {
		return fmt.Errorf("%w: empty discovery", errWrong)
	}
	return err
}

func (c *clients) ready(ctx context.Context) error {
	_, err := c.kube.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

// succeededSince is nil if each client had a success with a request that began
// after that time.
func (c *clients) succeededSince(since time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, at := range c.last {
		if !at.After(since) {
			return fmt.Errorf("%s: no success since %s", name, since.Format(time.TimeOnly))
		}
	}
	return nil
}

// longest is the longest request that ran within the time.
func (c *clients) longest(from, to time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var longest time.Duration
	for _, r := range c.requests {
		if r.to.After(from) && r.from.Before(to) {
			longest = max(longest, r.to.Sub(r.from))
		}
	}
	return longest
}

func (c *clients) failures() []failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// stop ends the clients, but not the informers.
func (c *clients) stop() {
	c.cancel()
	c.running.Wait()
}

// verify compares what was acknowledged with what is stored, and both with what the
// informers have.
func (c *clients) verify(ctx context.Context) error {
	var errs []error
	for gvr, store := range c.stores {
		list, err := c.dynamic.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		stored := map[string]unstructured.Unstructured{}
		for _, o := range list.Items {
			stored[o.GetName()] = o
		}
		errs = append(errs, c.verifyWrites(gvr, stored), verifyInformer(gvr, store, stored))
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
		s, ok := stored[o.name]
		if !ok {
			return fmt.Errorf("acknowledged %s %s is lost", gvr.Resource, o.name)
		}
		if got := valueOf(s); got != value && !contains(c.maybe[o], got) {
			return fmt.Errorf("%s %s has the value %q, acknowledged was %q", gvr.Resource, o.name, got, value)
		}
	}
	if n < 10 {
		return fmt.Errorf("only %d %s were written", n, gvr.Resource)
	}
	return nil
}

// verifyInformer waits until the informer has what is stored.
func verifyInformer(gvr schema.GroupVersionResource, store cache.Store, stored map[string]unstructured.Unstructured) error {
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = same(store, stored); err == nil {
			return nil
		}
	}
	return fmt.Errorf("informer of %s: %w", gvr.Resource, err)
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

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

func valueOf(o unstructured.Unstructured) string {
	value, _, _ := unstructured.NestedString(o.Object, "data", "value")
	return value
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
