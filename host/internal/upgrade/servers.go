package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/catena-dev/catena/sdk/stagev1"
)

var storageVersions = resource{apiserverinternalv1alpha1.GroupName, "v1alpha1", "storageversions"}

// compareServers finds what servers of the cluster write that the new release cannot read, and what it writes that they cannot read, by the
// StorageVersions that they have reported. They report these if that is switched on.
func (p *Plan) compareServers(ctx context.Context, in Input, old, next map[schema.GroupKind]*stagev1.Kubernetes_Kind) error {
	if in.Chain == nil {
		return nil
	}
	served, err := discover(ctx, Side{Get: in.Chain}, func(schema.GroupKind) bool { return true })
	if err != nil {
		return err
	}
	if _, ok := served[storageVersions]; !ok {
		return nil
	}
	body, err := in.Chain(ctx, storageVersions.list(), http.Header{"Accept": {"application/json"}})
	if err != nil {
		return fmt.Errorf("storage versions: %w", err)
	}
	var list apiserverinternalv1alpha1.StorageVersionList
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("storage versions: GET %s: %w", storageVersions.list(), err)
	}
	for _, reported := range list.Items {
		gk, ok := kindOf(served, reported.Name)
		is := next[gk]
		if !ok || is == nil {
			continue
		}
		ownWayBack := !slices.Contains(old[gk].GetVersions(), is.GetStorageVersion()) // which is told
		for _, server := range reported.Status.StorageVersions {
			if written := versionOf(server.EncodingVersion); !slices.Contains(is.GetVersions(), written) {
				p.add(Finding{Topic: Unreadable, Name: gk.String(), Blocks: true, Detail: fmt.Sprintf(
					"the server %s writes it as %s, which %s cannot read", server.APIServerID, written, p.To)})
			}
			reads := slices.ContainsFunc(server.DecodableVersions, func(v string) bool { return versionOf(v) == is.GetStorageVersion() })
			if in.Emulated == "" && len(is.GetServed()) > 0 && !reads && !ownWayBack {
				p.add(Finding{Topic: Back, Name: gk.String(), Blocks: true, Detail: fmt.Sprintf(
					"is written as %s, which the server %s of the same cluster cannot read", is.GetStorageVersion(), server.APIServerID)})
			}
		}
	}
	return nil
}

// kindOf is the kind of the resource that a StorageVersion is about; its name is GROUP.RESOURCE, and the first group's is core.
func kindOf(served map[resource]served, name string) (schema.GroupKind, bool) {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return schema.GroupKind{}, false
	}
	group := name[:dot]
	if group == "core" {
		group = ""
	}
	for r, s := range served {
		if r.group == group && r.name == name[dot+1:] {
			return s.kind, true
		}
	}
	return schema.GroupKind{}, false
}

func versionOf(groupVersion string) string {
	return groupVersion[strings.LastIndex(groupVersion, "/")+1:]
}
