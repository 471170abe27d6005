package delegates

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Groups returns the groups that discovery, a handler of the aggregated document, has: those of the
// list at /apis, in the same order.
func Groups(ctx context.Context, discovery http.Handler) ([]metav1.APIGroup, error) {
	text, status, err := read(ctx, discovery, apis, accept)
	if err != nil {
		return nil, fmt.Errorf("groups in discovery: %w", err)
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("groups in discovery: status %d: %s", status, text)
	}
	document := &apidiscoveryv2.APIGroupDiscoveryList{}
	if err := json.Unmarshal(text, document); err != nil {
		return nil, fmt.Errorf("groups in discovery: %w", err)
	}
	groups := make([]metav1.APIGroup, 0, len(document.Items))
	for _, item := range document.Items {
		if group := groupOf(item); len(group.Versions) > 0 {
			groups = append(groups, group)
		}
	}
	return groups, nil
}

func groupOf(item apidiscoveryv2.APIGroupDiscovery) metav1.APIGroup {
	group := metav1.APIGroup{Name: item.Name}
	for _, v := range item.Versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: schema.GroupVersion{Group: item.Name, Version: v.Version}.String(), Version: v.Version,
		})
	}
	if len(group.Versions) > 0 {
		group.PreferredVersion = group.Versions[0]
	}
	return group
}
