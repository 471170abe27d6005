package system

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// vanishing is a resource that core of Kubernetes 1.36 does not serve by default.
const vanishing = "podcertificaterequests.certificates.k8s.io"

// Core goes to Kubernetes 1.36 and back under load. Before, a plan tells what is in the way, and a swap heeds it.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(bin, "kube-1.36", "catena-stage-core")
	newer := filepath.Join(bin, "plugins", "catena-stage-core")
	command := func(args ...string) run {
		return runCatena(t, append(args, "--data-dir", c.DataDir())...)
	}
	generation := c.Stages()["core"]

	r := command("upgrade", "plan", "core", "--binary", older)
	if r.code != 0 || !strings.Contains(r.stdout, "nothing is in the way") || !strings.Contains(r.stdout, vanishing+"/v1: is not served by v1.36.") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	kubectl(t, c.Server, "get", vanishing, "-A")
	r = command("upgrade", "plan", "core", "--binary", older, "-o", "json")
	var plan struct {
		From, To          string
		Objects, Compared int
		Findings          []struct {
			Name, Detail string
			Blocks       bool
			Clients      []struct{ UserAgent string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &plan); err != nil || r.code != 2 {
		t.Fatalf("exit code %d: %v\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	if !strings.HasPrefix(plan.From, "v1.37.") || !strings.HasPrefix(plan.To, "v1.36.") || plan.Objects < 50 || plan.Compared < 50 {
		t.Errorf("the plan is from %s to %s, of %d objects, %d compared", plan.From, plan.To, plan.Objects, plan.Compared)
	}
	for _, f := range plan.Findings {
		if f.Blocks != (f.Name == vanishing+"/v1") || f.Blocks && (len(f.Clients) != 1 || !strings.HasPrefix(f.Clients[0].UserAgent, "kubectl/")) {
			t.Errorf("finding %+v", f)
		}
	}
	if r = command("swap", "core", "--binary", older); r.code != 1 || !strings.Contains(r.stderr, vanishing+"/v1: is not served by v1.36.") || !strings.Contains(r.stderr, "--allow") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if now := c.Stages()["core"]; now != generation {
		t.Errorf("core is %v, was %v", now, generation)
	}

	done := useWhile(t, c.Server)
	for _, step := range []struct {
		binary, version string
		served          bool
	}{{older, "v1.36.", false}, {newer, "v1.37.", true}, {older, "v1.36.", false}, {newer, "v1.37.", true}} {
		if r = command("swap", "core", "--binary", step.binary, "--allow", vanishing+"/v1"); r.code != 0 || !strings.Contains(r.stdout, "(version "+step.version) {
			t.Fatalf("to %s: exit code %d\n%s%s", step.version, r.code, r.stdout, r.stderr)
		}
		eventually(t, fmt.Sprintf("discovery of %s, with %s: %t", step.version, vanishing, step.served), func() bool {
			return strings.Contains(kubectl(t, c.Server, "api-resources", "--cached=false", "-o", "name"), vanishing) == step.served
		})
	}
	done()
}

// useWhile writes and reads as several users until the result is called, each of whom watches what all write: no request may
// fail, and no event be missed.
func useWhile(t *testing.T, s *cluster.Server) (done func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	writers, stop := context.WithCancel(ctx)
	list, err := kubernetes.NewForConfigOrDie(s.Config(cluster.Admin)).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var watching, writing sync.WaitGroup
	users := make([]struct {
		wrote int
		seen  atomic.Int64
	}, 4)
	for i := range users {
		client, err := kubernetes.NewForConfig(as(s, fmt.Sprint("user-", i)))
		if err != nil {
			t.Fatal(err)
		}
		maps := client.CoreV1().ConfigMaps("default")
		watching.Go(func() { countAdded(ctx, t, maps, list.ResourceVersion, &users[i].seen) })
		writing.Go(func() {
			for ; writers.Err() == nil; users[i].wrote++ {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: fmt.Sprintf("upgrade-%d-", i)}}
				created, err := maps.Create(ctx, object, metav1.CreateOptions{})
				if err == nil {
					_, err = maps.Get(ctx, created.Name, metav1.GetOptions{})
				}
				if err != nil {
					t.Errorf("request %d of %d: %v", users[i].wrote, i, err)
				}
			}
		})
	}
	return func() {
		t.Helper()
		eventually(t, "a hundred objects are written", func() bool { return users[0].seen.Load() >= 100 })
		stop()
		writing.Wait()
		total := 0
		for i := range users {
			total += users[i].wrote
		}
		for i := range users {
			eventually(t, fmt.Sprintf("all events of user %d", i), func() bool { return users[i].seen.Load() >= int64(total) })
		}
		cancel()
		watching.Wait()
		t.Logf("%d objects were written and read", total)
		for i := range users {
			if n := users[i].seen.Load(); n != int64(total) {
				t.Errorf("user %d saw %d objects appear, %d were written", i, n, total)
			}
		}
	}
}

// as returns the configuration of a client that may do all.
func as(s *cluster.Server, user string) *rest.Config {
	config := rest.CopyConfig(s.Config(cluster.Admin))
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return config
}

// countAdded watches from a version on, until ctx ends. The watch does not end before.
func countAdded(ctx context.Context, t *testing.T, maps typedcorev1.ConfigMapInterface, version string, n *atomic.Int64) {
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		t.Errorf("watch: %v", err)
		return
	}
	for event := range w.ResultChan() {
		if _, ok := event.Object.(metav1.Object); !ok && ctx.Err() == nil {
			t.Errorf("watch: %v", event)
		}
		if event.Type == watch.Added {
			n.Add(1)
		}
	}
	if ctx.Err() == nil {
		t.Error("a watch has ended")
	}
}

// Core goes from Kubernetes 1.36 to 1.37 in two steps: first it serves as 1.36, from where it can go back, and then as itself. In between, the
// stage that is left on 1.37 is killed.
func TestUpgradeEmulated(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	older, newer := filepath.Join(bin, "kube-1.36", "catena-stage-core"), filepath.Join(bin, "plugins", "catena-stage-core")
	c := catena(t, cluster.Options{Set: []string{"stages.core.binary=" + older}})
	command := func(want string, args ...string) {
		t.Helper()
		if r := runCatena(t, append(args, "--data-dir", c.DataDir())...); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Fatalf("%v: exit code %d, %q is not in\n%s%s", args, r.code, want, r.stdout, r.stderr)
		}
	}
	discovers := func(served bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("discovery with %s: %t", vanishing, served), func() bool {
			return strings.Contains(kubectl(t, c.Server, "api-resources", "--cached=false", "-o", "name"), vanishing) == served
		})
	}
	if err := syscall.Kill(c.Stages()["aggregator"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server to be ready again", func() bool { return cluster.Ready(t.Context(), c.Config(cluster.Admin)) == nil })

	done := useWhile(t, c.Server)
	command("until catena upgrade finalize: the way back is safe", "upgrade", "plan", "core", "--binary", newer, "--emulate")
	command("(version v1.37.", "swap", "core", "--binary", newer, "--emulate")
	discovers(false)
	command("core serves as Kubernetes 1.36 until catena upgrade finalize core", "status")
	command("(version v1.36.", "swap", "core", "--binary", older)
	if r := runCatena(t, "status", "--data-dir", c.DataDir()); strings.Contains(r.stdout, "finalize") {
		t.Errorf("back at 1.36:\n%s", r.stdout)
	}
	if r := runCatena(t, "upgrade", "finalize", "core", "--data-dir", c.DataDir()); r.code != 1 || !strings.Contains(r.stderr, "nothing to finalize") {
		t.Errorf("back at 1.36: exit code %d\n%s", r.code, r.stderr)
	}
	command("(version v1.37.", "swap", "core", "--binary", newer, "--emulate")
	discovers(false)
	command("(version v1.37.", "upgrade", "finalize", "core")
	discovers(true)
	done()
	if r := runCatena(t, "upgrade", "finalize", "core", "--data-dir", c.DataDir()); r.code != 1 || !strings.Contains(r.stderr, "nothing to finalize") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}
