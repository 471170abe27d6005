package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// Another program takes the place of the host while clients use it: no connection is refused, nothing is lost, no request
// fails but for writes over HTTP/1.1 that meet the end of their idle connection and are not executed, an informer misses nothing, and the process stays the same.
func TestHostUpgrade(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"embedded etcd", "external etcd"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			o := cluster.Options{}
			if store == "external etcd" {
				o.Set = []string{"store.endpoints=" + startExternalEtcd(t).url}
			}
			testHostUpgrade(t, catena(t, o))
		})
	}
}

func testHostUpgrade(t *testing.T, c *cluster.Catena) {
	pid := c.Process().PID()
	load := startUpgradeLoad(t, c)
	load.awaitRequests(50)
	for range 2 { // the second one from a program that has taken over itself
		out, err := c.Command(t.Context(), "upgrade")
		if err != nil {
			t.Fatal(err)
		}
		load.awaitRequests(50)
		if want := fmt.Sprintf("pid %d", pid); !strings.Contains(out, "host upgraded: ") || !strings.Contains(out, want) {
			t.Errorf("printed %q, want %s", out, want)
		}
		t.Log(strings.TrimSpace(out))
	}
	load.stop()
	t.Logf("%d requests, the longest took %s, %d writes over HTTP/1.1 failed with their idle connections",
		load.requests, load.longest.Round(time.Millisecond), len(load.unread))
	if len(load.failed) > 0 {
		t.Errorf("%d requests have failed, the first ones: %v", len(load.failed), load.failed[:min(5, len(load.failed))])
	}
	load.judgeObjects(t, c)
	var status struct {
		Changes []struct{ What, By, Error string }
	}
	text, err := c.Command(t.Context(), "status", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil || len(status.Changes) != 1 || status.Changes[0].What != "upgrade" || status.Changes[0].Error != "" {
		t.Errorf("%v, the changes are %+v", err, status.Changes)
	}
}

// upgradeLoad are clients that read and write, some over HTTP/1.1, each on its own connection, and an informer.
type upgradeLoad struct {
	stop func()

	mu           sync.Mutex
	requests     int
	longest      time.Duration
	failed       []string
	unread       []string // names of objects that were not made
	acknowledged sets.Set[string]
	seen         sets.Set[string]
	more         *sync.Cond
}

func startUpgradeLoad(t *testing.T, c *cluster.Catena) *upgradeLoad {
	t.Helper()
	l := &upgradeLoad{acknowledged: sets.New[string](), seen: sets.New[string]()}
	l.more = sync.NewCond(&l.mu)
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(clientset(t, c.Server, cluster.Admin), 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen.Insert(o.(*corev1.ConfigMap).Name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	var wg sync.WaitGroup
	for i := range 8 {
		http2 := i%2 == 0
		v := newVisitor(t, c.Server, http2)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if i < 4 {
					l.record(v.visit(context.WithoutCancel(ctx), http.MethodGet, "/api/v1/namespaces/default", ""), "", http2)
					continue
				}
				name := fmt.Sprintf("upgrade-%d-%d", i, n)
				l.record(v.visit(context.WithoutCancel(ctx), http.MethodPost, "/api/v1/namespaces/default/configmaps",
					fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)), name, http2)
				time.Sleep(10 * time.Millisecond) // so that the store does not fill up
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(l.stop)
	return l
}

// record counts a request, which has written an object unless name is empty.
func (l *upgradeLoad) record(v visit, name string, http2 bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.more.Broadcast()
	l.requests++
	l.longest = max(l.longest, v.ended.Sub(v.begun))
	switch {
	case v.err == nil && v.code < 300:
		if name != "" {
			l.acknowledged.Insert(name)
		}
	case v.err != nil && name != "" && !http2 && !v.dialed:
		// Its idle connection was just being closed, which HTTP/1.1 cannot tell from a lost response.
		l.unread = append(l.unread, name)
	default:
		l.failed = append(l.failed, fmt.Sprintf("%d %v", v.code, v.err))
	}
}

// awaitRequests waits until so many more requests have ended.
func (l *upgradeLoad) awaitRequests(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for until := l.requests + n; l.requests < until; {
		l.more.Wait()
	}
}

// judgeObjects checks that what was acknowledged is there, and that the informer has seen all that is.
func (l *upgradeLoad) judgeObjects(t *testing.T, c *cluster.Catena) {
	t.Helper()
	list, err := clientset(t, c.Server, cluster.Admin).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := sets.New[string]()
	for _, o := range list.Items {
		stored.Insert(o.Name)
	}
	if lost := l.acknowledged.Difference(stored); lost.Len() > 0 || l.acknowledged.Len() == 0 {
		t.Errorf("%d writes were acknowledged, lost are %v", l.acknowledged.Len(), lost.UnsortedList())
	}
	if stored.HasAny(l.unread...) {
		t.Errorf("of %v, which failed with their connections, some are stored", l.unread)
	}
	eventually(t, "the informer has seen all objects", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.seen.IsSuperset(stored)
	})
}

// A program that could not take over changes nothing, and one that fails after it has gives the one before its place back.
func TestHostUpgradeThatFails(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	bin, err := filepath.Abs(os.Getenv("CATENA_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	script := func(name, text string) string {
		path := filepath.Join(c.Dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	real := filepath.Join(bin, "catena")
	before := c.Stages()
	for name, wrong := range map[string]struct{ binary, want string }{
		"no file":           {"/nowhere/catena", "no such file"},
		"not executable":    {"/etc/hostname", "/etc/hostname"},
		"another program":   {"/bin/true", "is not catena"},
		"dies":              {script("dies", "exit 3"), "exit status 3"},
		"cannot take over":  {script("old", `echo '{"catena": "v0", "kubernetes": "v1.37.0"}'`), "it is too old"},
		"an older release":  {script("older", `echo '{"catena": "v0", "kubernetes": "v1.36.0", "handover": true}'`), "--allow older"},
		"refuses its place": {script("refuses", `case "$1" in version) exec `+real+` "$@";; *) echo no; exit 1;; esac`), "could not take over: exit status 1: no"},
	} {
		out, err := c.Command(t.Context(), "upgrade", "--binary", wrong.binary)
		if err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v, want %s\n%s", name, err, wrong.want, out)
		}
	}
	if after := c.Stages(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the processes were %v and are %v", before, after)
	}

	if out, err := c.Command(t.Context(), "swap", "extensions", "--probation", "10m"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := c.Command(t.Context(), "upgrade"); err == nil || !strings.Contains(err.Error(), `a swap of stage "extensions" is on probation`) {
		t.Errorf("during a probation: %v\n%s", err, out)
	}
	if out, err := c.Command(t.Context(), "swap", "extensions", "--promote"); err != nil {
		t.Fatal(out, err)
	}

	// It passes the check, and then it is started with another configuration.
	fails := script("fails", `case "$CATENA_HANDOVER" in ""|check) exec `+real+` "$@";; *) exec `+real+` serve --config /nowhere.yaml;; esac`)
	out, err := c.Command(t.Context(), "upgrade", "--binary", fails)
	if err == nil || !strings.Contains(err.Error(), "has its place back") || !strings.Contains(err.Error(), "/nowhere.yaml") {
		t.Errorf("a program that fails: %v\n%s", err, out)
	}
	if r := do(t, c.Config(cluster.Admin), http.MethodGet, "/api/v1/namespaces/default", ""); r.code != http.StatusOK {
		t.Errorf("afterwards: %d %s", r.code, r.body)
	}
}
