package system

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The resources of this test, and what their objects have besides a name.
var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	events     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	customs    = schema.GroupVersionResource{Group: "relist.example.com", Version: "v1", Resource: "widgets"}
	flunders   = schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}

	objectsOf = map[schema.GroupVersionResource]map[string]any{
		configMaps: {"kind": "ConfigMap"}, secrets: {"kind": "Secret"}, customs: {"kind": "Widget"},
		events:   {"kind": "Event", "involvedObject": map[string]any{"kind": "Pod", "namespace": "default", "name": "x"}},
		flunders: {"kind": "Flunder", "spec": map[string]any{"reference": "x"}},
	}
)

// reflecting is one reflector of client-go, and the requests that it makes: "list", also for a watch that begins with all
// objects, or "watch".
type reflecting struct {
	t       *testing.T
	client  dynamic.ResourceInterface
	kind    schema.GroupVersionResource
	store   cache.Store
	stalled atomic.Pointer[chan struct{}]
	next    http.RoundTripper
	end     context.CancelFunc

	mu       sync.Mutex
	requests []string
}

// startReflector starts a reflector whose watches have that timeout, in seconds, and waits until it watches.
func startReflector(t *testing.T, c *cluster.Catena, kind schema.GroupVersionResource, timeout int64) *reflecting {
	t.Helper()
	r := &reflecting{t: t, kind: kind, store: cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)}
	config := c.Config(cluster.Admin)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		r.next = next
		return r
	})
	watched := dynamic.NewForConfigOrDie(config).Resource(kind).Namespace(metav1.NamespaceDefault)
	r.client = dynamic.NewForConfigOrDie(c.Config(cluster.Admin)).Resource(kind).Namespace(metav1.NamespaceDefault)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return watched.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.TimeoutSeconds = &timeout
			return watched.Watch(ctx, o)
		},
	}
	ctx, end := context.WithCancel(t.Context())
	r.end = end
	go cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, r.store, cache.ReflectorOptions{}).RunWithContext(ctx)
	r.mark()
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *reflecting) RoundTrip(req *http.Request) (*http.Response, error) {
	q := req.URL.Query()
	name := "watch"
	if q.Get("watch") == "" || q.Get("sendInitialEvents") == "true" {
		name = "list"
	}
	r.mu.Lock()
	r.requests = append(r.requests, name)
	r.mu.Unlock()
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		resp.Body = stallable{resp.Body, r}
	}
	return resp, err
}

// stallable is a body that is not read while the reflector is stalled.
type stallable struct {
	io.ReadCloser
	of *reflecting
}

func (s stallable) Read(p []byte) (int, error) {
	if gate := s.of.stalled.Load(); gate != nil {
		<-*gate
	}
	return s.ReadCloser.Read(p)
}

func (r *reflecting) made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// create makes an object, and returns its name.
func (r *reflecting) create() (name string) {
	r.t.Helper()
	o := &unstructured.Unstructured{Object: maps.Clone(objectsOf[r.kind])}
	o.SetAPIVersion(r.kind.GroupVersion().String())
	o.SetGenerateName("mark-")
	eventually(r.t, "an object is created", func() bool {
		created, err := r.client.Create(r.t.Context(), o, metav1.CreateOptions{})
		if err == nil {
			name = created.GetName()
		}
		return err == nil
	})
	return name
}

// mark waits until the reflector has an object that was just made.
func (r *reflecting) mark() {
	r.t.Helper()
	name := r.create()
	eventually(r.t, "the reflector has "+name, func() bool {
		_, ok, err := r.store.GetByKey("default/" + name)
		return ok && err == nil
	}, func() string { return fmt.Sprint(r.made()) })
}

// watchResumes are the counters of watches that had to leave a process.
func watchResumes(t *testing.T, c *cluster.Catena) map[string]int {
	t.Helper()
	series := regexp.MustCompile(`(?m)^catena_watch_resumes_total\{cause="(\w+)",result="(\w+)",stage="(\w+)"\} (\d+)$`)
	counted := map[string]int{}
	for _, m := range series.FindAllStringSubmatch(kubectl(t, c.Server, "get", "--raw", "/metrics"), -1) {
		counted[m[3]+" "+m[1]+" "+m[2]], _ = strconv.Atoi(m[4])
	}
	return counted
}

// Where no process can go on with a watch, it ends so that client-go goes on with another one, and does not list anew
// unless the past is gone. The host counts what has become of each watch.
func TestWatchesEndWell(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	wardle := filepath.Join(t.TempDir(), "catena-stage-wardle")
	program, err := os.ReadFile(filepath.Join(bin, "examples", "catena-stage-wardle"))
	if err != nil {
		t.Fatal(err)
	}
	install := func(program []byte) {
		t.Helper()
		if err := os.Remove(wardle); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := cluster.WriteProgram(wardle, program); err != nil {
			t.Fatal(err)
		}
	}
	install(program)
	c := catena(t, cluster.Options{Set: []string{
		"stages.core.delegate=wardle", "stages.core.drainSpread=0s", "stages.extensions.watches=passthrough",
		`stages.wardle={"binary":"` + wardle + `","lock":"off","delegate":"extensions","required":false,` +
			`"grants":{"store":"own","network":true}}`,
	}})
	kubectl(t, c.Server, "apply", "-f", write(t, "rights.yaml", flunderRights))
	kubectl(t, c.Server, "apply", "-f", write(t, "crd.yaml", relistDefinition))
	kubectl(t, c.Server, "wait", "--for=condition=Established", "crd/widgets.relist.example.com", "--timeout=60s")
	kill := func(stage string) {
		t.Helper()
		if err := syscall.Kill(c.Stages()[stage], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func() {}
	some := regexp.MustCompile(`(?m)^catena_watches\{.*\} [1-9]`)
	want := map[string]int{}
	for _, end := range []struct {
		name    string
		kind    schema.GroupVersionResource
		timeout int64
		// end ends the watch, or begins what does. It returns what follows the next request.
		end     func(r *reflecting) (then func())
		counted []string
	}{
		{"its time is over, in the next process", configMaps, 8, func(r *reflecting) func() {
			kill("core")
			r.mark()
			return nothing
		}, []string{"core broken resumed"}},
		{"an event was too long", configMaps, 300, func(r *reflecting) func() {
			config := c.Config(cluster.Admin)
			config.ContentType = runtime.ContentTypeProtobuf
			of := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceDefault)
			o := &corev1.ConfigMap{Data: map[string]string{"long": strings.Repeat("\x01", 900<<10)}} // in JSON, six times as long
			o.Name = "long"
			if _, err := of.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.mark()
			kill("core")
			return nothing
		}, []string{"core broken no_position"}},
		{"its client does not read", configMaps, 300, func(r *reflecting) func() {
			gate := make(chan struct{})
			r.stalled.Store(&gate)
			defer close(gate)
			defer r.stalled.Store(nil)
			terminated := regexp.MustCompile(`apiserver_terminated_watchers_total\{[^}]*resource="configmaps"[^}]*\} [1-9]`)
			random := make([]byte, 600<<10) // the watch is compressed
			_, _ = rand.Read(random)
			large, n := base64.StdEncoding.EncodeToString(random), 0
			name := r.create()
			eventually(t, "core has ended the watch", func() bool {
				n++
				change := fmt.Appendf(nil, `{"data":{"large":"%s","n":"%d"}}`, large, n)
				if _, err := r.client.Patch(t.Context(), name, types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				return n%10 == 0 && terminated.MatchString(kubectl(t, c.Server, "get", "--raw", "/metrics"))
			})
			return nothing
		}, nil},
		{"the stage passes watches through", customs, 300, func(*reflecting) func() {
			kill("extensions")
			return nothing
		}, []string{"extensions broken not_promised"}},
		{"its stage does not come back", flunders, 300, func(*reflecting) func() {
			install([]byte("#!/bin/false\n"))
			kill("wardle")
			return func() { install(program) }
		}, []string{"wardle broken no_process"}},
		{"the server ends", secrets, 300, func(*reflecting) func() {
			if got := watchResumes(t, c); !maps.Equal(got, want) {
				t.Errorf("the host has counted %v, want %v", got, want)
			}
			if err := c.Process().Stop(); err != nil {
				t.Fatal(err)
			}
			return nil
		}, nil},
	} {
		r := startReflector(t, c, end.kind, end.timeout)
		before := len(r.made())
		then := end.end(r)
		eventually(t, "another request: "+end.name, func() bool { return len(r.made()) > before })
		if then != nil {
			then()
			r.mark()
		}
		if made := r.made()[before:]; slices.Contains(made, "list") {
			t.Errorf("%s: then the client makes the requests %v", end.name, made)
		}
		for _, counted := range end.counted {
			want[counted]++
		}
		r.end()
		if then != nil {
			eventually(t, "there is no watch", func() bool {
				return !some.MatchString(kubectl(t, c.Server, "get", "--raw", "/metrics"))
			})
		}
	}
	if err := c.Start(t.Context()); err != nil { // what ends with the test
		t.Error(err)
	}
}

// A process that comes up after etcd was compacted does not know what a quiet watch has missed: its client lists once.
func TestWatchOfACompactedPastEnds(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{Set: []string{"store.compactionInterval=1s"}})
	r, others := startReflector(t, c, secrets, 300), startReflector(t, c, configMaps, 300)
	list, err := r.client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the past is compacted", func() bool {
		others.mark()
		_, err := r.client.List(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), ResourceVersionMatch: "Exact"})
		return err != nil
	})
	others.end()
	before := len(r.made())
	if err := syscall.Kill(c.Stages()["core"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.mark()
	if made := r.made()[before:]; len(made) < 2 || made[0] != "watch" || made[1] != "list" || slices.Contains(made[2:], "list") {
		t.Errorf("then the client makes the requests %v", made)
	}
	if got := watchResumes(t, c)["core broken expired"]; got != 1 {
		t.Errorf("counted as expired: %d", got)
	}
}

// The demonstration of the README ends well: one watch of kubectl shows all objects.
func TestDemoWatch(t *testing.T) {
	t.Parallel()
	demo := exec.CommandContext(t.Context(), filepath.Join(cluster.Root(), "examples", "watch", "demo.sh"))
	demo.Env = cluster.Environ()
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "kubectl has asked for 1 watch, which shows 5 objects.") {
		t.Errorf("%v\n%s", err, out)
	}
}
