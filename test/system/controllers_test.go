package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// withControllers is the chain of Kubernetes with its controllers, whose lease lasts as long as is said.
func withControllers(lease string) string {
	return `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages:
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {delegate: controllers}
  controllers: {config: {flags: {` + lease + `}}}
`
}

// holder is who has the lease of the controllers, empty if nobody has.
func holder(t *testing.T, s *cluster.Server) string {
	t.Helper()
	return kubectl(t, s, "get", "lease", "-n", "kube-system", "--ignore-not-found", "kube-controller-manager", "-o", "jsonpath={.spec.holderIdentity}")
}

// work makes what needs controllers, waits until they have done all of it, and deletes it.
func work(t *testing.T, s *cluster.Server, namespace string) {
	t.Helper()
	kubectl(t, s, "create", "namespace", namespace)
	in := func(args ...string) string { return kubectl(t, s, append([]string{"-n", namespace}, args...)...) }
	in("create", "deployment", "web", "--image=web:1", "--replicas=2")
	eventually(t, "the Deployment has its pods, of a service account with the authority's certificate", func() bool {
		return len(strings.Fields(in("get", "pods", "-o", "name"))) == 2
	}, func() string { return in("get", "all,events") })
	if out := in("get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data}"); !strings.Contains(out, "BEGIN CERTIFICATE") {
		t.Errorf("kube-root-ca.crt: %s", out)
	}
	kubectl(t, s, "delete", "namespace", namespace, "--timeout=2m")
}

// The stage controllers does the work of kube-controller-manager: each controller with an identity and the rights of its own, in a process that
// can be replaced and die.
func TestControllers(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.log")
	c := catena(t, cluster.Options{
		ConfigFile: write(t, "catena.yaml", withControllers("leader-elect-retry-period: 1s, leader-elect-renew-deadline: 4s, leader-elect-lease-duration: 6s")),
		Flags:      map[string]string{"audit-policy-file": write(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"), "audit-log-path": audit},
		Set:        []string{"log.format=json", "log.stageLevel=warn"},
	})
	work(t, c.Server, "first")
	checkIdentities(t, audit)

	if err := c.Swap(t.Context(), "controllers"); err != nil {
		t.Fatal(err)
	}
	work(t, c.Server, "second")
	for _, line := range complaints(t, c.Process().Log) {
		t.Error(line)
	}

	pid := c.Stages()["controllers"]
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	work(t, c.Server, "third")
	if checks := kubectl(t, c.Server, "get", "--raw", "/healthz?verbose"); !strings.Contains(checks, "[+]controllers/leaderElection ok") ||
		!strings.Contains(checks, "[+]controllers/garbage-collector-controller ok") {
		t.Errorf("health:\n%s", checks)
	}
	if metrics := kubectl(t, c.Server, "get", "--raw", "/metrics"); !strings.Contains(metrics, `leader_election_master_status{name="kube-controller-manager",stage="controllers"} 1`) {
		t.Error("the metrics do not say who has the lease")
	}

	// Somebody else has the lease: the controllers of this process must not go on.
	pid = c.Stages()["controllers"]
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	kubectl(t, c.Server, "patch", "lease", "-n", "kube-system", "kube-controller-manager", "--type=merge", "-p", `{"spec": {"holderIdentity": "somebody", "renewTime": "`+now+`"}}`)
	eventually(t, "the process that has lost the lease ends", func() bool { return c.Stages()["controllers"] != pid })
	eventually(t, "the log says why the process has ended", func() bool {
		return strings.Contains(string(read(c.Process().Log)), "the lease was lost")
	})
	work(t, c.Server, "fourth")
}

// checkIdentities looks at who has made what in the namespace first.
func checkIdentities(t *testing.T, audit string) {
	t.Helper()
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	makers := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			continue // the last one is being written
		}
		if e.User.Username == "system:kube-controller-manager" && e.ImpersonatedUser.Username == "" {
			t.Errorf("with all rights of the stage: %s %s", e.Verb, e.RequestURI)
		}
		if e.Verb == "create" && e.ObjectRef["namespace"] == "first" {
			makers[e.ObjectRef["resource"]] = append(makers[e.ObjectRef["resource"]], e.ImpersonatedUser.Username)
		}
	}
	for resource, controller := range map[string]string{
		"serviceaccounts": "service-account-controller", "configmaps": "root-ca-cert-publisher",
		"replicasets": "deployment-controller", "pods": "replicaset-controller",
	} {
		if want := "system:serviceaccount:kube-system:" + controller; !slices.Contains(makers[resource], want) {
			t.Errorf("%s are made by %q, want %s", resource, makers[resource], want)
		}
	}
}

// Of two hosts one runs the controllers, and the other one when that has ended. Who ends, or is swapped, gives up a lease that would last for ten minutes,
// and the next one, which looks at it every five minutes, hears of that.
func TestControllersOfTwoHosts(t *testing.T) {
	t.Parallel()
	o := cluster.Options{
		ConfigFile: write(t, "catena.yaml", withControllers("leader-elect-retry-period: 300s, leader-elect-renew-deadline: 500s, leader-elect-lease-duration: 600s")),
		Set:        []string{"store.endpoints=" + startExternalEtcd(t).url},
	}
	first, err := cluster.StartCatena(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			t.Error(first.Stop(true))
		}
	})
	next := func(s *cluster.Server, had string) (has string) {
		t.Helper()
		eventually(t, "another process than "+had+" has the lease", func() bool { has = holder(t, s); return has != "" && has != had })
		return has
	}
	had := next(first.Server, "")
	if err := first.Swap(t.Context(), "controllers"); err != nil {
		t.Fatal(err)
	}
	had = next(first.Server, had)
	token, err := first.Command(t.Context(), "token", "create")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	o.Prepare = func(c *cluster.Catena) error {
		_, err := c.Command(t.Context(), append([]string{"join", token}, c.Args(bin)[1:]...)...)
		return err
	}
	second := catena(t, o)
	work(t, second.Server, "two")
	if now := holder(t, second.Server); now != had {
		t.Errorf("the lease has gone from %s to %s", had, now)
	}
	stopped = true
	if err := first.Stop(false); err != nil {
		t.Fatal(err)
	}
	next(second.Server, had)
	work(t, second.Server, "one")
}
