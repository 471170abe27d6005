package system

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// In kube-apiserver one object in memory has the storage versions of all three servers; here each
// stage writes its own. What they write is the same: for built-in resources, those of custom resource
// definitions and APIServices too, and none for custom resources.
func TestCarriedStorageVersions(t *testing.T) {
	t.Parallel()
	p := startPair(t, cluster.Options{Flags: map[string]string{
		"feature-gates":  "StorageVersionAPI=true",
		"runtime-config": "internal.apiserver.k8s.io/v1alpha1=true",
	}})
	var all []map[string]v1alpha1.StorageVersionStatus
	p.each(func(name string, s *cluster.Server) {
		serveWidgets(t, s)
		found, err := storageVersions(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, found)
	})
	want, got := all[0], all[1]
	if w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(w, g) {
		t.Errorf("there are StorageVersions of\n%v\nwant\n%v", g, w)
	}
	for _, name := range []string{"core.pods", "apps.deployments", "apiextensions.k8s.io.customresourcedefinitions", "apiregistration.k8s.io.apiservices"} {
		if _, ok := want[name]; !ok {
			t.Errorf("kube-apiserver has none of %s", name)
		}
	}
	for name, w := range want {
		if g, ok := got[name]; ok && !reflect.DeepEqual(g, w) {
			t.Errorf("%s has\n%+v\nwant\n%+v", name, g, w)
		}
	}
}

// storageVersions returns the status of each StorageVersion, without what differs between two
// servers. The server that each is of has to be the one that has a lease.
func storageVersions(ctx context.Context, s *cluster.Server) (map[string]v1alpha1.StorageVersionStatus, error) {
	client, err := kubernetes.NewForConfig(s.Config(cluster.Admin))
	if err != nil {
		return nil, err
	}
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil {
		return nil, err
	}
	if len(leases.Items) != 1 {
		return nil, fmt.Errorf("there are %d identity leases", len(leases.Items))
	}
	list, err := client.InternalV1alpha1().StorageVersions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]v1alpha1.StorageVersionStatus{}
	for _, item := range list.Items {
		status := item.Status
		for i, of := range status.StorageVersions {
			if of.APIServerID != leases.Items[0].Name {
				return nil, fmt.Errorf("%s is of the server %s, whose lease is %s", item.Name, of.APIServerID, leases.Items[0].Name)
			}
			status.StorageVersions[i].APIServerID = "this server"
			// Kubernetes collects these from a map, so their order is random.
			slices.Sort(status.StorageVersions[i].ServedVersions)
		}
		for i := range status.Conditions {
			status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
		found[item.Name] = status
	}
	return found, nil
}

// Until the StorageVersion of a resource is written, the resource is not: writes are refused. Here they
// cannot be written, since their API is not enabled.
func TestWritesWaitForStorageVersions(t *testing.T) {
	t.Parallel()
	o := cluster.Options{Flags: map[string]string{"feature-gates": "StorageVersionAPI=true"}}
	for name, path := range map[string]string{"kube-apiserver": kubeAPIServerPath(t), "Catena": asKubeAPIServer(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := cluster.NewKubeAPIServer(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				// A kube-apiserver that has never been ready ends with an error.
				if err := k.Stop(t.Failed()); err != nil && name == "Catena" {
					t.Error(err)
				}
			})
			if err := k.Launch(path); err != nil {
				t.Fatal(err)
			}
			admin := k.Config(cluster.Admin)
			eventually(t, "the namespace kube-system", func() bool {
				resp, err := httpClient(t, admin).Get(admin.Host + "/api/v1/namespaces/kube-system")
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			})
			for resource, c := range map[string]struct{ path, body string }{
				"configmaps": {"/api/v1/namespaces/kube-system/configmaps", `{"metadata": {"name": "a"}}`},
				"customresourcedefinitions.apiextensions.k8s.io": {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata": {"name": "a"}}`},
				"apiservices.apiregistration.k8s.io":             {"/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata": {"name": "v1.a"}}`},
			} {
				want := "wait for storage version registration to complete for resource: " + resource + ","
				eventually(t, resource+" are refused", func() bool {
					a := do(t, admin, http.MethodPost, c.path, c.body)
					return a.code == http.StatusServiceUnavailable && strings.Contains(a.body, want)
				})
			}
			for path, body := range map[string]string{
				"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases": `{"metadata": {"name": "a"}}`,
				"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":     `{"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}`,
			} {
				if a := do(t, admin, http.MethodPost, path, body); a.code != http.StatusCreated {
					t.Errorf("%s: %d %s", path, a.code, a.body)
				}
			}
		})
	}
}
