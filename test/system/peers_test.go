package system

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	// jobsPath is served by one of two servers of a cluster.
	jobsPath = "/apis/batch/v1/namespaces/default/jobs"
	// peerDiscovery asks for what all servers of the cluster serve, ownDiscovery for what the server itself does.
	peerDiscovery = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	ownDiscovery  = peerDiscovery + ";profile=nopeer"

	job = `{"metadata": {"name": "NAME", "annotations": {"by": "BY"}}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}`
)

// A request for what a server does not serve, and another one of the cluster does, is passed on to that,
// whichever of the two is Catena, with its user. Both know each other by leases, of which each has one.
func TestPeers(t *testing.T) {
	t.Parallel()
	theirs, ours := kubeAPIServerPath(t), asKubeAPIServer(t)
	for name, c := range map[string]struct{ with, without string }{
		"from Catena to kube-apiserver": {with: theirs, without: ours},
		"from kube-apiserver to Catena": {with: ours, without: theirs},
		"from Catena to Catena":         {with: ours, without: ours},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := func(path string) map[string]string {
				if path == ours {
					return map[string]string{}
				}
				// kube-apiserver does not use --peer-advertise-ip.
				return map[string]string{"advertise-address": "127.0.0.1", "endpoint-reconciler-type": "none"}
			}
			with := started(t, c.with, cluster.Options{Peers: true, Flags: flags(c.with)})
			without := flags(c.without)
			without["runtime-config"] = "batch/v1=false"
			testPeers(t, with, started(t, c.without, cluster.Options{Peers: true, Beside: with, Flags: without}))
		})
	}
}

func testPeers(t *testing.T, with, without *cluster.KubeAPIServer) {
	admin, direct := without.Config(cluster.Admin), with.Config(cluster.Admin)
	awaitPassedOn(t, without)
	create := strings.NewReplacer("NAME", "one", "BY", strings.Repeat("x", 200_000)).Replace(job)
	if a := do(t, admin, http.MethodPost, jobsPath, create); a.code != http.StatusCreated || !strings.Contains(a.body, `"kind":"Job"`) {
		t.Errorf("create: %d %.300s", a.code, a.body)
	}
	if a := do(t, direct, http.MethodGet, jobsPath+"/one", ""); a.code != http.StatusOK {
		t.Errorf("the other server: %d %.300s", a.code, a.body)
	}
	// The user is the one who asks: both servers authorize the request.
	if a := do(t, without.Config(cluster.Alice), http.MethodGet, jobsPath, ""); a.code != http.StatusForbidden || !strings.Contains(a.body, `User \"alice\" cannot list`) {
		t.Errorf("alice: %d %s", a.code, a.body)
	}
	watchesPeer(t, without, with)

	// What is served by both stays where it is, and what none serves is not found.
	for path, want := range map[string]int{
		"/api/v1/namespaces/default": 200, "/apis/apps/v1/deployments": 200, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": 200,
		"/apis/batch/v7/jobs": 404, "/apis/nobody.example.com/v1/things": 404, "/api/v1/things": 404,
	} {
		if a := do(t, admin, http.MethodGet, path, ""); a.code != want {
			t.Errorf("%s: %d, want %d: %.200s", path, a.code, want, a.body)
		}
	}
	for accept, want := range map[string]bool{peerDiscovery: true, ownDiscovery: false} {
		if got := slices.Contains(discoveredGroups(t, admin, accept), "batch"); got != want {
			t.Errorf("with %s the group batch is in discovery: %v", accept, got)
		}
	}
	if out := kubectl(t, without.Server, "get", "jobs", "-n", "default", "-o", "name"); !strings.Contains(out, "job.batch/one") {
		t.Errorf("kubectl get jobs: %s", out)
	}
	leases := kubectl(t, without.Server, "get", "leases", "-n", "kube-system", "-l", "apiserver.kubernetes.io/identity=kube-apiserver", "-o", "name")
	if n := len(strings.Fields(leases)); n != 2 {
		t.Errorf("%d servers have these leases:\n%s", n, leases)
	}
	serveWidgets(t, without.Server)
	serveWidgets(t, with.Server)
}

// discoveredGroups are those of the aggregated discovery document.
func discoveredGroups(t *testing.T, config *rest.Config, accept string) (names []string) {
	t.Helper()
	a := do(t, config, http.MethodGet, "/apis", "", accept)
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal([]byte(a.body), &list); err != nil {
		t.Fatalf("%d: %v: %.200s", a.code, err, a.body)
	}
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names
}

// awaitPassedOn waits until a server passes on requests.
func awaitPassedOn(t *testing.T, s *cluster.KubeAPIServer) {
	t.Helper()
	var last response
	eventually(t, "jobs are served by the other server", func() bool {
		last = do(t, s.Config(cluster.Admin), http.MethodGet, jobsPath, "")
		return last.code == http.StatusOK
	}, func() string { return last.body })
}

// watchesPeer checks that an event of a watch that is passed on comes when it happens.
func watchesPeer(t *testing.T, from, to *cluster.KubeAPIServer) {
	t.Helper()
	resp := send(t, from.Config(cluster.Admin), http.MethodGet, jobsPath+"?watch=1&fieldSelector=metadata.name%3Dtwo", "", nil)
	defer resp.Body.Close()
	body := strings.NewReplacer("NAME", "two", "BY", "").Replace(job)
	if a := do(t, to.Config(cluster.Admin), http.MethodPost, jobsPath, body); a.code != http.StatusCreated {
		t.Fatalf("create: %d %s", a.code, a.body)
	}
	event := make([]byte, 16)
	if _, err := resp.Body.Read(event); err != nil || !strings.HasPrefix(string(event), `{"type":"ADDED"`) {
		t.Errorf("the watch has %q (%v)", event, err)
	}
}
