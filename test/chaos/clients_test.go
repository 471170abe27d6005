package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/kubelet"
)

const namespace = "chaos"

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	services   = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	flunders   = schema.GroupVersionResource{Group: wardle, Version: "v1alpha1", Resource: "flunders"}
	crds       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// clients are the clients of a server, and their records.
type clients struct {
	kube    *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	// informed is for informers.
	informed *dynamic.DynamicClient
	cancel   context.CancelFunc
	running  sync.WaitGroup
	// written are the resources that are written and watched.
	written []schema.GroupVersionResource
	stores  map[schema.GroupVersionResource]cache.Store
	streams map[schema.GroupVersionResource]*stream // what the informers received

	mu sync.Mutex
	// acknowledged has, for each object, the value of its last acknowledged write,
	// and maybe the values of later writes that may have been executed.
	acknowledged map[object]string
	maybe        map[object][]string
	// changes are the acknowledged writes by resource and client, in their order.
	changes  map[schema.GroupVersionResource]map[string][]change
	requests map[string][]request // by client, in the order of time
	last     map[string]time.Time // latest begin of a success, by client
	failed   []failure
	breaks   []request // the times of the sessions, and watches of an aggregated server, that broke
	ends     []failure // the watches of the informers that have ended
	node     *kubelet.Kubelet
	history  *history
	// fleet is set if there are several hosts: clients are told to try another one, and a request that has failed at a host
	// which was suspended may be executed later.
	fleet bool
}

type object struct {
	resource schema.GroupVersionResource
	name     string
}

// request is the time that a request took.
type request struct{ from, to time.Time }

// failure is a request that failed, with all retries of client-go.
type failure struct {
	request
	what  string
	wrong bool // no fault excuses this response
	safe  bool // the request may be sent again, and has not begun to get a response
	err   error
}

// startClients starts all clients of a server whose clients have a configuration. With a node, some of them hold
// sessions in a pod on it; without, there are several hosts. More clients are prepared by functions, which return what each does
// again and again, by their names.
func startClients(ctx context.Context, configFor func(user string) *rest.Config, node *cluster.Catena, more ...func(context.Context, *clients) (map[string]task, error)) (*clients, error) {
	c := &clients{
		written:      []schema.GroupVersionResource{configMaps, widgets},
		acknowledged: map[object]string{}, maybe: map[object][]string{},
		requests: map[string][]request{}, last: map[string]time.Time{}, stores: map[schema.GroupVersionResource]cache.Store{},
		fleet: node == nil, streams: map[schema.GroupVersionResource]*stream{}, changes: map[schema.GroupVersionResource]map[string][]change{configMaps: {}, widgets: {}},
	}
	config := configFor(cluster.Admin)
	config.Timeout = 30 * time.Second
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &recorder{rt, c} })
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
	config.Timeout = 0 // watches last
	if c.informed, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	whoami, err := c.whoami(configFor(cluster.Alice))
	if err != nil {
		return nil, err
	}
	if node != nil {
		if c.node, err = kubelet.Join(ctx, node, kubelet.Options{Node: "node"}); err != nil {
			return nil, err
		}
		if err := kubelet.RunPod(ctx, c.kube, "node", namespace, "pod"); err != nil {
			return nil, err
		}
	}
	plain := configFor(cluster.Admin) // without the recorder, to which "not found" is wrong
	plain.Timeout = 30 * time.Second
	if c.history, err = newHistory(plain); err != nil {
		return nil, err
	}
	tasks := map[string]task{}
	for _, prepare := range more {
		add, err := prepare(ctx, c)
		if err != nil {
			return nil, err
		}
		maps.Copy(tasks, add)
	}
	// The informers go on when the other clients end, to receive the last events.
	if err := c.watch(ctx); err != nil {
		return nil, err
	}
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range 2 {
		c.loop(ctx, fmt.Sprintf("writer of ConfigMaps %d", i), c.writer(configMaps, i, newConfigMap))
		c.loop(ctx, fmt.Sprintf("writer of Widgets %d", i), c.writer(widgets, i, newWidget))
		if node != nil {
			c.running.Go(func() { c.session(ctx, configFor(cluster.Admin)) })
		}
	}
	c.loop(ctx, "creator of ConfigMaps", c.creator(configMaps, newConfigMap))
	c.loop(ctx, "creator of Widgets", c.creator(widgets, newWidget))
	c.loop(ctx, "reader of ConfigMaps", c.reader(configMaps, namespace, "always-there"))
	c.loop(ctx, "reader of APIServices", c.reader(services, "", "v1.apps"))
	c.loop(ctx, "reader of CustomResourceDefinitions", c.reader(crds, "", "widgets.example.com"))
	c.loop(ctx, "whoami", whoami)
	c.loop(ctx, "discovery", c.discovery)
	for i := range historians {
		c.loop(ctx, fmt.Sprint("historian ", i), c.history.historian(i))
	}
	for name, do := range tasks {
		c.loop(ctx, name, do)
	}
	return c, nil
}

// prepare creates the objects that the clients use.
func (c *clients) prepare(ctx context.Context) error {
	_, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	always := newConfigMap("always-there", "0")
	if _, err := c.dynamic.Resource(configMaps).Namespace(namespace).Create(ctx, always, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := c.dynamic.Resource(crds).Create(ctx, widgetCRD(), metav1.CreateOptions{}); err != nil {
		return err
	}
	// The first one takes two seconds: Kubernetes' code waits for other servers to know the kind.
	return poll(ctx, func() error {
		_, err := c.dynamic.Resource(widgets).Namespace(namespace).Create(ctx, newWidget("always-there", "0"), metav1.CreateOptions{})
		return err
	})
}

// pace is the pause of a client, which leaves processor time to the server.
const pace = 50 * time.Millisecond

// task is what a client does for the nth time.
type task func(ctx context.Context, n int) error

// loop calls do repeatedly and records the results.
func (c *clients) loop(ctx context.Context, name string, do task) {
	c.mu.Lock()
	c.last[name] = time.Time{}
	c.mu.Unlock()
	c.running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			from := time.Now()
			// A request that has begun is finished, so that its outcome is known.
			err := do(context.WithoutCancel(ctx), n)
			c.done(name, request{from, time.Now()}, err)
			time.Sleep(pace)
		}
	})
}

func (c *clients) done(name string, r request, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[name] = append(c.requests[name], r)
	if err == nil {
		c.last[name] = r.from
		return
	}
	wrong := apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || errors.Is(err, errWrong)
	c.failed = append(c.failed, failure{request: r, what: name, wrong: wrong, err: err})
}

var errWrong = errors.New("wrong response")

// reader reads an object that always exists.
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

// whoami requests the identity of alice, whose headers claim another one.
func (c *clients) whoami(config *rest.Config) (func(context.Context, int) error, error) {
	config.Timeout = 30 * time.Second
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &recorder{forger{rt}, c} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ int) error {
		r, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if u := r.Status.UserInfo; u.Username != cluster.Alice || slices.Contains(u.Groups, user.SystemPrivilegedGroup) {
			return fmt.Errorf("%w: the user is %q of %q", errWrong, u.Username, u.Groups)
		}
		return nil
	}, nil
}

// discovery reads the document that kubectl reads first.
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

// longest returns the longest request that ran within the time, and its client.
func (c *clients) longest(from, to time.Time) (longest time.Duration, whose string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, requests := range c.requests {
		for _, r := range slices.Backward(requests) {
			if r.to.Before(from) {
				break
			}
			if took := r.to.Sub(r.from); r.from.Before(to) && took > longest {
				longest, whose = took, name
			}
		}
	}
	return longest, whose
}

func (c *clients) failures() (failed []failure, breaks []request, ends []failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed, c.breaks, c.ends
}

// stop ends the clients, but not the informers. It can be called more than once.
func (c *clients) stop() {
	c.cancel()
	c.running.Wait()
	if c.node != nil {
		c.node.Stop()
	}
}
