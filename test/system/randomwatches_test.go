package system

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var (
	watchesFor  = flag.Duration("watches.for", 20*time.Second, "how long TestRandomWatches goes on")
	watchesSeed = flag.Uint64("watches.seed", 0, "seed of the choices of TestRandomWatches; 0 takes one at random")
)

// randomWatches begins watches of all kinds, and ends some of them.
type randomWatches struct {
	t      *testing.T
	c      *cluster.Catena
	random *rand.Rand
	order  *etcdOrder

	mu  sync.Mutex
	all []*orderedWatch
}

// watchedResources are all kinds: of core, without a watch cache, custom, and of a stage.
var watchedResources = map[string]schema.GroupVersionResource{
	"configmaps": configMaps, "events": events, "relist.example.com/widgets": customs,
	"wardle.example.com/flunders": flunders,
}

// randomObject returns one of those that are written, whose labels are chosen at random.
func randomObject(random *rand.Rand, resource string) *unstructured.Unstructured {
	gvr := watchedResources[resource]
	o := (&unstructured.Unstructured{Object: objectsOf[gvr]}).DeepCopy()
	o.SetAPIVersion(gvr.GroupVersion().String())
	o.SetName(fmt.Sprint("object-", random.IntN(8)))
	o.SetLabels(map[string]string{"colour": colours[random.IntN(len(colours))]})
	return o
}

var colours = []string{"red", "green", "blue"}

// write makes, changes and deletes objects of a resource until ctx ends.
func (r *randomWatches) write(ctx context.Context, resource string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	client := dynamic.NewForConfigOrDie(r.c.Config(cluster.Admin)).Resource(watchedResources[resource]).Namespace("default")
	for ctx.Err() == nil {
		o := randomObject(random, resource)
		switch random.IntN(4) {
		case 0:
			_, _ = client.Create(ctx, o, metav1.CreateOptions{})
		case 1:
			_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		default:
			long := "" // takes several chunks, within which a process may die
			if o.GetName() == "object-0" {
				long = strings.Repeat("x", random.IntN(200<<10))
			}
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"colour":%q,"n":"%d"},"annotations":{"long":%q}}}`,
				o.GetLabels()["colour"], random.IntN(1e6), long)
			_, _ = client.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(30)) * time.Millisecond):
		}
	}
}

// join begins one more watch.
func (r *randomWatches) join(ctx context.Context) error {
	resource := pick(r.random, slices.Sorted(maps.Keys(watchedResources)))
	w := &orderedWatch{resource: resource, matches: func(string, map[string]string) bool { return true }}
	opts := metav1.ListOptions{AllowWatchBookmarks: r.random.IntN(2) == 0}
	switch colour, name := colours[r.random.IntN(3)], fmt.Sprint("object-", r.random.IntN(8)); r.random.IntN(5) {
	case 0:
		opts.LabelSelector = "colour=" + colour
		w.matches = func(_ string, labels map[string]string) bool { return labels["colour"] == colour }
	case 1:
		opts.LabelSelector = "colour!=" + colour
		w.matches = func(_ string, labels map[string]string) bool { return labels["colour"] != colour }
	case 2:
		opts.FieldSelector = "metadata.name=" + name
		w.matches = func(n string, _ map[string]string) bool { return n == name }
	}
	if r.random.IntN(2) == 0 {
		opts.TimeoutSeconds = new(int64(3600))
	}
	form := pick(r.random, []string{"JSON", "JSON", "metadata", "table", "protobuf"})
	if changes := r.order.of(resource); len(changes) > 0 {
		w.after = changes[max(0, len(changes)-1-r.random.IntN(50))].revision
		opts.ResourceVersion = fmt.Sprint(w.after)
	}
	switch begin := r.random.IntN(6); {
	case begin == 0, w.after == 0:
		w.after, opts.ResourceVersion = 0, ""
	case begin == 1:
		w.after, opts.ResourceVersion = 0, "0"
	case begin == 2 && form != "table":
		w.after, w.lists, opts.AllowWatchBookmarks = 0, true, true
		opts.SendInitialEvents, opts.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
		opts.ResourceVersion = pick(r.random, []string{"", "0", opts.ResourceVersion})
	}
	w.bookmarks = opts.AllowWatchBookmarks
	config := r.c.Config(cluster.Admin)
	config.UserAgent = fmt.Sprint("client-", r.random.IntN(100)) // a canary has a part of the clients
	if config.NextProtos = []string{"h2", "http/1.1"}; r.random.IntN(2) == 0 {
		config.NextProtos = []string{"http/1.1"}
	}
	starts := watchesIn(config, watchedResources[resource])
	if starts[form] == nil {
		form = "JSON"
	}
	w.about = fmt.Sprintf("%s of %s over %s, %+v", form, resource, config.NextProtos[0], opts)
	ctx, w.stop = context.WithCancel(ctx)
	events, err := starts[form](ctx, opts)
	if err != nil {
		w.stop()
		return fmt.Errorf("%s: %w", w.about, err)
	}
	go w.follow(events.ResultChan())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, w)
	return nil
}

// leave ends a watch, but none of the first ones.
func (r *randomWatches) leave() {
	const stay = 20
	if len(r.all) > 2*stay {
		w := r.all[stay+r.random.IntN(len(r.all)-stay)]
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
		w.stop()
	}
}

// hasBookmark reports whether a bookmark has come that is not the end of initial events.
func (r *randomWatches) hasBookmark() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.all, func(w *orderedWatch) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.events, func(e orderedEvent) bool {
			return e.kind == watch.Bookmark && !e.initialEnd
		})
	})
}

// change does something to the process of a stage, and returns what.
func (r *randomWatches) change(ctx context.Context) (what string, err error) {
	stage := pick(r.random, []string{"core", "core", "extensions", "wardle"})
	switch r.random.IntN(5) {
	case 0, 1:
		return "swap " + stage, r.c.Swap(ctx, stage)
	case 2, 3:
		return "kill " + stage, syscall.Kill(r.c.Stages()[stage], syscall.SIGKILL)
	}
	share, end := pick(r.random, []string{"30%", "50%", "90%"}), pick(r.random, []string{"--rollback", "--promote"})
	out, err := r.c.Command(ctx, "swap", stage, "--canary", share, "--for", "1h")
	if err != nil {
		return "", fmt.Errorf("%s: %w", out, err)
	}
	time.Sleep(time.Duration(r.random.IntN(2500)) * time.Millisecond) // watches move in this time
	if out, err := r.c.Command(ctx, "swap", stage, end); err != nil {
		return "", fmt.Errorf("%s: %w", out, err)
	}
	return fmt.Sprintf("canary of %s of %s, %s", share, stage, end), nil
}

func pick[T any](random *rand.Rand, all []T) T { return all[random.IntN(len(all))] }

// Whenever a watch begins, wherever, and in whichever form, and whatever happens to the processes that serve it: it shows
// each change once, in the order of etcd, and does not end.
func TestRandomWatches(t *testing.T) {
	t.Parallel()
	seed := *watchesSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("-watches.seed=%d -watches.for=%s", seed, *watchesFor)
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	etcd, resources := startExternalEtcd(t), slices.Sorted(maps.Keys(watchedResources))
	r := &randomWatches{t: t, random: rand.New(rand.NewPCG(seed, 0))}
	modes := []string{"resume", "verify"}
	settings := `"drainSpread":"1s","probation":"1s","watches":"` + pick(r.random, modes) + `"`
	c := catena(t, cluster.Options{PluginDirs: []string{filepath.Join(bin, "examples")}, Set: []string{
		"store.endpoints=" + etcd.url, "stages.core.delegate=wardle",
		`stages.wardle={"lock":"off","delegate":"extensions","grants":{"store":"own","network":true},` + settings + `}`,
		"stages.core.drainSpread=1s", "stages.core.probation=1s", "stages.core.watches=" + pick(r.random, modes),
		"stages.extensions.drainSpread=1s", "stages.extensions.probation=1s", "stages.extensions.watches=" + pick(r.random, modes),
	}})
	kubectl(t, c.Server, "apply", "-f", write(t, "rights.yaml", flunderRights))
	kubectl(t, c.Server, "apply", "-f", write(t, "crd.yaml", relistDefinition))
	kubectl(t, c.Server, "wait", "--for=condition=Established", "crd/widgets.relist.example.com", "--timeout=60s")
	r.c = c
	r.order = followEtcd(t, etcd.url, resources)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var writers, joins sync.WaitGroup
	writing, stop := context.WithCancel(ctx)
	defer stop()
	for i, resource := range resources {
		writers.Go(func() { r.write(writing, resource, seed+uint64(i)) })
	}
	for _, resource := range resources {
		eventually(t, "there are "+resource, func() bool { return len(r.order.of(resource)) > 20 })
	}
	until := time.Now().Add(*watchesFor)
	refused := 0
	joins.Go(func() {
		for writing.Err() == nil {
			if err := r.join(ctx); err != nil {
				t.Log(err) // a process that was killed had the request
				refused++
			}
			r.leave()
			select {
			case <-writing.Done():
			case <-time.After(time.Duration(50+r.random.IntN(150)) * time.Millisecond):
			}
		}
	})
	changing := &randomWatches{t: t, c: c, random: rand.New(rand.NewPCG(seed, 2))}
	stages, changes := len(c.Stages()), map[string]int{}
	// Bookmarks come to a watch that has been with one process for a minute.
	rest := *watchesFor >= 3*time.Minute
	for time.Now().Before(until) {
		if rest && time.Until(until) < *watchesFor/2 {
			rest = false
			eventually(t, "a bookmark comes", r.hasBookmark)
		}
		before := c.Stages()
		what, err := changing.change(t.Context())
		if err != nil && strings.Contains(err.Error(), "try again") { // after a kill
			continue
		}
		if err != nil {
			t.Error(err)
			break
		}
		changes[strings.Fields(what)[0]]++
		eventually(t, "there is one process of each stage after "+what, func() bool {
			now := c.Stages()
			_, killed, _ := strings.Cut(what, "kill ")
			return len(now) == stages && len(c.StageProcesses()) == stages && (killed == "" || now[killed] != before[killed])
		})
	}
	stop()
	writers.Wait()
	joins.Wait()
	r.check(changes, refused)
}

// check waits until all watches have shown everything.
func (r *randomWatches) check(changes map[string]int, refused int) {
	t, ends, shown := r.t, 0, 0
	const late = 10 * time.Second // what etcd has may come to the test later than to its clients
	stopped := time.Now()
	for _, w := range r.all {
		complete, wrong := w.verdict(r.order.of(w.resource))
		for !complete && time.Since(stopped) < patience && (wrong == nil || time.Since(stopped) < late) {
			time.Sleep(20 * time.Millisecond)
			complete, wrong = w.verdict(r.order.of(w.resource))
		}
		if wrong != nil || !complete {
			t.Errorf("%s: complete: %t, %.500v", w.about, complete, wrong)
		}
		w.mu.Lock()
		if shown += len(w.events); w.ended && !w.stopped {
			ends++
		}
		w.mu.Unlock()
	}
	t.Logf("%v; %d watches with %d events, %d refused, %d ended before they had a position", changes, len(r.all), shown, refused, ends)
	counted := watchResumes(t, r.c)
	t.Logf("the host has counted %v", counted)
	without := 0 // position
	for what, n := range counted {
		switch strings.Fields(what)[2] {
		case "resumed":
		case "no_position":
			without += n
		default:
			t.Errorf("the host has counted %d %s", n, what)
		}
	}
	if without < ends {
		t.Errorf("the host has counted %d watches that ended, of %d", without, ends)
	}
}
