package system

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// alteredCore builds a core with three mistakes.
func alteredCore(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catena-stage-core")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "./test/system/testdata/alteredcore")
	cmd.Dir = cluster.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// shadowReport has the parts of "catena shadow report -o json" that tests use.
type shadowReport struct {
	Why     string
	Results map[string]int
	Groups  []struct {
		Resource, Path, How string
		Count               int
		Example             struct{ Request, Old, New string }
	}
}

// A core with another default, without a field and with another status is found to differ in these, with the path. Clients see nothing
// of it.
func TestShadow(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	altered := alteredCore(t)
	c := catena(t, cluster.Options{})
	command := func(args ...string) run {
		t.Helper()
		return runCatena(t, append(args, "--data-dir", c.DataDir())...)
	}
	wants := func(code int, want string, args ...string) {
		t.Helper()
		if r := command(args...); r.code != code || !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("%v: exit code %d, %q is not in\n%s%s", args, r.code, want, r.stdout, r.stderr)
		}
	}
	report := func() (r shadowReport) {
		t.Helper()
		out := command("shadow", "report", "-o", "json")
		if err := json.Unmarshal([]byte(out.stdout), &r); err != nil {
			t.Fatalf("%v\n%s%s", err, out.stdout, out.stderr)
		}
		return r
	}
	wants(1, "no stage has been shadowed", "shadow", "report")
	wants(1, "no stage is shadowed", "shadow", "stop")
	wants(1, `stage "nothing"`, "shadow", "nothing", "--binary", altered)
	wants(1, "no such file", "shadow", "core", "--binary", altered+"-missing")
	wants(1, "stage \"core\"", "shadow", "core", "--binary", filepath.Join(bin, "tools", "kubectl"))
	wants(0, "stage core is shadowed by "+altered, "shadow", "core", "--binary", altered, "--sample", "100%", "--budget", "200%")
	wants(1, `stage "core" is shadowed by `+altered, "shadow", "extensions", "--binary", altered)
	wants(0, "core is shadowed by "+altered, "status")

	client, err := kubernetes.NewForConfig(c.Config(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	labels := map[string]string{"a": "b"}
	object := metav1.ObjectMeta{Name: "shadowed", Labels: labels}
	_, err = client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: object, StringData: map[string]string{"k": "c3VwZXI"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		d, err := client.AppsV1().Deployments("default").Get(ctx, "shadowed", metav1.GetOptions{})
		if err != nil || *d.Spec.RevisionHistoryLimit != 10 {
			t.Errorf("%v, %v", d, err)
		}
		services, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err != nil || len(services.Items) == 0 || services.Items[0].Spec.SessionAffinity != "None" {
			t.Errorf("%v, %v", services, err)
		}
		if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "nothing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		if _, err := client.CoreV1().Secrets("default").Get(ctx, "shadowed", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	var r shadowReport
	eventually(t, "all requests compared", func() bool {
		r = report()
		return r.Results["different"] == 15 && r.Results["equal"] >= 7
	}, func() string { return command("shadow", "report").stdout })
	var found []string
	for _, g := range r.Groups {
		if g.Count != 5 {
			t.Errorf("%+v", g)
		}
		found = append(found, strings.Join([]string{g.Resource, g.Path, g.How, g.Example.Old, g.Example.New}, " "))
	}
	slices.Sort(found)
	want := []string{"configmaps.v1 (status code) changed 404 410", "deployments.apps/v1 spec.revisionHistoryLimit changed 10 3", `services.v1 spec.sessionAffinity missing "None" `}
	if !slices.Equal(found, want) {
		t.Errorf("%q, want %q", found, want)
	}
	wants(2, "deployments.apps/v1: spec.revisionHistoryLimit: changed, 5 times", "shadow", "report")
	wants(2, "<code>spec.revisionHistoryLimit</code>", "shadow", "report", "-o", "html")
	if metrics := kubectl(t, c.Server, "get", "--raw", "/metrics"); !strings.Contains(metrics, `catena_shadow_requests_total{result="different",stage="core"} 15`) {
		t.Error("the metrics do not count what differs")
	}
	wants(0, "stage core is not shadowed any more", "shadow", "stop")
	if got := report(); got.Why != "it was stopped" || got.Results["different"] != 15 {
		t.Errorf("%+v", got)
	}

	same := filepath.Join(bin, "plugins", "catena-stage-core")
	// It ends with its time, its process, and its stage.
	wants(0, "is shadowed", "shadow", "core", "--binary", same, "--for", "1s")
	eventually(t, "the end", func() bool { return report().Why == "its time was over" })
	wants(0, "is shadowed", "shadow", "core", "--binary", same)
	pids := others(t, c)
	if len(pids) != 1 {
		t.Fatalf("processes beside core: %v", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end", func() bool { return strings.HasPrefix(report().Why, "its process has ended: ") })
	wants(0, "is shadowed", "shadow", "core", "--binary", same)
	wants(0, "stage core swapped", "swap", "core")
	eventually(t, "the end", func() bool { return report().Why == "the stage was swapped" })
	eventually(t, "no process beside core", func() bool { return len(others(t, c)) == 0 })

	wants(1, "controllers that write", "shadow", "aggregator", "--binary", filepath.Join(bin, "plugins", "catena-stage-aggregator"))
	wants(0, "on probation", "swap", "core", "--rollback-on", "health", "--probation", "1h")
	wants(1, `a swap of stage "core" is on probation`, "shadow", "core", "--binary", same)
}

// others are the processes of core that do not serve.
func others(t *testing.T, c *cluster.Catena) []int {
	t.Helper()
	out, err := c.Command(context.Background(), "status", "core", "-o", "json")
	var status cluster.Status
	if err == nil {
		err = json.Unmarshal([]byte(out), &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, o := range status.Stages[0].Others {
		pids = append(pids, o.PID)
	}
	return pids
}
