package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// helm installs, upgrades, rolls back and uninstalls a chart with a CustomResourceDefinition, an object of its kind,
// and hooks. One of them is a Job that helm waits for.
func TestHelm(t *testing.T) {
	home := t.TempDir()
	helm, kubectl := built(t, "clients", "helm"), built(t, "tools", "kubectl")
	env := environ(t, home)
	e := &envtest.Environment{}
	startEnvironment(t, e)
	kubeconfig := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(kubeconfig, e.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	env = append(env, "KUBECONFIG="+kubeconfig)
	r := release{helm: program{helm, env}, kubectl: program{kubectl, env}, clients: kubernetes.NewForConfigOrDie(e.Config)}
	jobs := r.completeJobs(t)

	r.helm.run(t, "install", "demo", "testdata/chart")
	r.hasSize(t, 1)
	r.helm.run(t, "upgrade", "demo", "testdata/chart", "--set", "size=2")
	r.hasSize(t, 2)
	if out, err := r.helm.try(t.Context(), "upgrade", "demo", "testdata/chart", "--set", "size=0"); err == nil {
		t.Errorf("an upgrade to an object that its definition does not allow: %s", out)
	}
	r.helm.run(t, "rollback", "demo", "1")
	r.hasSize(t, 1)
	if got := r.revisions(t); fmt.Sprint(got) != "[superseded superseded failed deployed]" {
		t.Errorf("revisions are %v", got)
	}
	r.helm.run(t, "uninstall", "demo")
	_, err := r.clients.CoreV1().ConfigMaps("default").Get(t.Context(), "demo", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("after uninstall: %v", err)
	}
	if out := r.kubectl.run(t, "get", "gadgets,deployments", "-o", "name"); out != "" {
		t.Errorf("after uninstall: %s", out)
	}
	if out := r.kubectl.run(t, "get", "crd,configmap", "-o", "name", "--field-selector", "metadata.name!=kube-root-ca.crt"); out != "customresourcedefinition.apiextensions.k8s.io/gadgets.charts.catena.dev\nconfigmap/demo-installed\n" {
		t.Errorf("what helm does not remove: %q", out)
	}
	if got := jobs(); got != 4 {
		t.Errorf("%d Jobs have run, want those before two upgrades, the rollback and the end", got)
	}
}

// release is a release of the chart, and who looks at it.
type release struct {
	helm, kubectl program
	clients       kubernetes.Interface
}

// hasSize checks that the objects of the release have the size.
func (r release) hasSize(t *testing.T, size int) {
	t.Helper()
	want := strconv.Itoa(size)
	for path, object := range map[string]string{"{.data.size}": "configmap/demo", "{.spec.size}": "gadget/demo", "{.spec.replicas}": "deployment/demo"} {
		if got := r.kubectl.run(t, "get", object, "-o", "jsonpath="+path); got != want {
			t.Errorf("%s has size %q, want %s", object, got, want)
		}
	}
}

// revisions returns the status of each revision.
func (r release) revisions(t *testing.T) []string {
	t.Helper()
	var history []struct{ Status string }
	if err := json.Unmarshal([]byte(r.helm.run(t, "history", "demo", "-o", "json")), &history); err != nil {
		t.Fatal(err)
	}
	status := make([]string, len(history))
	for i, h := range history {
		status[i] = h.Status
	}
	return status
}

// completeJobs does what the controller of Jobs and a node would do: each Job is complete as soon as there is one.
// The function that it returns ends that, and returns how many there were.
func (r release) completeJobs(t *testing.T) func() int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	added, err := r.clients.BatchV1().Jobs("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	count := make(chan int)
	go func() {
		n := 0
		for event := range added.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok && event.Type == watch.Added {
				n++
				if err := r.complete(ctx, job); err != nil {
					t.Error(err)
				}
			}
		}
		count <- n
	}()
	return func() int {
		defer cancel()
		added.Stop()
		return <-count
	}
}

func (r release) complete(ctx context.Context, job *batchv1.Job) error {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	_, err := r.clients.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
	if err != nil {
		err = errors.Join(fmt.Errorf("complete Job %s", job.Name), err)
	}
	return err
}
