package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/catena-dev/catena/sdk/stagev1"
)

var customResourceDefinition = schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}

// addCustom adds the kinds of custom resources, as each side reads their definitions, if these are the stage's. In the store may be objects
// of each version in status.storedVersions, even if they are encrypted.
func (p *Plan) addCustom(ctx context.Context, in Input, old, next map[schema.GroupKind]*stagev1.Kubernetes_Kind) error {
	if old[customResourceDefinition] == nil || next[customResourceDefinition] == nil {
		return nil
	}
	if _, err := addDefined(ctx, in.Old, old); err != nil {
		return fmt.Errorf("%s: %w", p.From, err)
	}
	crds, err := addDefined(ctx, in.New, next)
	if err != nil {
		return fmt.Errorf("%s: %w", p.To, err)
	}
	if len(crds) > 0 {
		p.add(Finding{Topic: Unknown, Name: "custom resources",
			Detail: fmt.Sprintf("objects of %d definitions are not compared: the new process serves them later", len(crds))})
	}
	for _, crd := range crds {
		gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		for _, stored := range crd.Status.StoredVersions {
			if slices.Contains(next[gk].GetVersions(), stored) {
				continue
			}
			f := Finding{Topic: Unreadable, Name: gk.String(),
				Detail: fmt.Sprintf("status.storedVersions of %s has %s, which neither release reads", crd.Name, stored)}
			if slices.Contains(old[gk].GetVersions(), stored) {
				f.Blocks, f.Detail = true, fmt.Sprintf("status.storedVersions of %s has %s, which %s cannot read", crd.Name, stored, p.To)
			}
			p.add(f)
		}
	}
	return nil
}

// addDefined adds the kinds of custom resources that a process has definitions of, and returns these.
func addDefined(ctx context.Context, s Side, kinds map[schema.GroupKind]*stagev1.Kubernetes_Kind) ([]apiextensionsv1.CustomResourceDefinition, error) {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	body, err := s.Get(ctx, path, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, fmt.Errorf("custom resource definitions: %w", err)
	}
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("custom resource definitions: GET %s: %w", path, err)
	}
	for _, crd := range list.Items {
		k := custom(crd.Spec)
		kinds[schema.GroupKind{Group: k.GetGroup(), Kind: k.GetKind()}] = k
	}
	return list.Items, nil
}

// custom is the kind of a custom resource. All versions of its definition can be read, whether they are served or not.
func custom(spec apiextensionsv1.CustomResourceDefinitionSpec) *stagev1.Kubernetes_Kind {
	k := &stagev1.Kubernetes_Kind{Group: spec.Group, Kind: spec.Names.Kind}
	for _, v := range spec.Versions {
		k.Versions = append(k.Versions, v.Name)
		if v.Served {
			k.Served = append(k.Served, v.Name)
		}
		if v.Storage {
			k.StorageVersion = v.Name
		}
	}
	return k
}
