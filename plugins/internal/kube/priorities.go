package kube

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/catena-dev/catena/sdk"
)

// priorityMap has the places of group versions in discovery.
type priorityMap = map[schema.GroupVersion]controlplaneapiserver.APIServicePriority

// coreGroups has the groups that only kube-apiserver has, in its order. Those of
// every generic control plane are in controlplaneapiserver.
var coreGroups = []struct {
	group    string
	priority int32
	versions map[string]int32
}{
	{"apps", 17800, map[string]int32{"v1": 15}},
	{"autoscaling", 17500, map[string]int32{"v2": 30, "v1": 15, "v2beta1": 9, "v2beta2": 1}},
	{"batch", 17400, map[string]int32{"v1": 15, "v1beta1": 9, "v2alpha1": 9}},
	{"networking.k8s.io", 17200, map[string]int32{"v1": 15, "v1beta1": 9}},
	{"policy", 17100, map[string]int32{"v1": 15, "v1beta1": 9}},
	{"storage.k8s.io", 16800, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
	{"scheduling.k8s.io", 16600, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha3": 3}},
	{"node.k8s.io", 16300, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
	{"resource.k8s.io", 16200, map[string]int32{"v1": 21, "v1beta2": 15, "v1beta1": 9, "v1alpha3": 1}},
	{"lifecycle.k8s.io", 15700, map[string]int32{"v1alpha1": 1}},
}

// otherPriority is for groups that Kubernetes does not know: they come after its
// own, and before those of custom resources (1000).
var otherPriority = controlplaneapiserver.APIServicePriority{Group: 15000, Version: 15}

// priorities returns the priorities of all group versions that Kubernetes or a
// stage downstream of the aggregator has. A stage's group version becomes an APIService
// only if it is here.
func priorities(downstream []sdk.Delegate) priorityMap {
	all := controlplaneapiserver.DefaultGenericAPIServicePriorities()
	for _, g := range coreGroups {
		for version, priority := range g.versions {
			all[schema.GroupVersion{Group: g.group, Version: version}] = controlplaneapiserver.APIServicePriority{Group: g.priority, Version: priority}
		}
	}
	for _, delegate := range downstream {
		for _, path := range delegate.ListedPaths {
			gv, ok := groupVersion(path)
			if _, known := all[gv]; ok && !known {
				all[gv] = otherPriority
			}
		}
	}
	return all
}

// builtin returns the group versions that delegate lists.
func builtin(delegate sdk.Delegate, all priorityMap) map[metav1.GroupVersion]delegates.Priority {
	listed := map[metav1.GroupVersion]delegates.Priority{}
	for _, path := range delegate.ListedPaths {
		if gv, ok := groupVersion(path); ok {
			p := all[gv]
			listed[metav1.GroupVersion(gv)] = delegates.Priority{Group: int(p.Group), Version: int(p.Version)}
		}
	}
	return listed
}

// groupVersion returns the group version at a path /apis/GROUP/VERSION.
func groupVersion(path string) (schema.GroupVersion, bool) {
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "" || parts[1] != "apis" || parts[2] == "" || parts[3] == "" {
		return schema.GroupVersion{}, false
	}
	return schema.GroupVersion{Group: parts[2], Version: parts[3]}, true
}
