package apistage

import (
	"fmt"
	"slices"
	"strings"

	genericopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/catena-dev/catena/sdk/apistage/internal/schemas"
)

// addOpenAPI documents the group. Server-side apply too works by these definitions.
func (b *groupBuilder) addOpenAPI() error {
	docs, err := schemas.ParseDocs(b.group.TypeSources...)
	if err != nil {
		return err
	}
	base := genericopenapi.GetOpenAPIDefinitions // has those of metadata, lists and Scale
	if b.group.Definitions != nil {
		base = b.group.Definitions
	}
	definitions := schemas.Definitions(base, docs, b.scheme.types()...)
	namer := newDefinitionNamer(b.scheme)
	title := fmt.Sprintf("Stage %s", b.env.Name)

	unused := openapinamer.NewDefinitionNamer()
	v2 := genericapiserver.DefaultOpenAPIConfig(definitions, unused)
	v2.GetDefinitionName = namer.name
	v2.Info.Title = title
	b.config.OpenAPIConfig = v2

	v3 := genericapiserver.DefaultOpenAPIV3Config(definitions, unused)
	v3.GetDefinitionName = namer.name
	v3.Definitions = definitions(func(name string) spec.Ref {
		public, _ := namer.name(name)
		return spec.MustCreateRef("#/components/schemas/" + common.EscapeJsonPointer(public))
	})
	v3.Info.Title = title
	b.config.OpenAPIV3Config = v3
	return nil
}

// definitionNamer names definitions as Kubernetes' DefinitionNamer does, which expects
// the names that openapi-gen writes, and would publish the internal version of a type
// that stands for it.
type definitionNamer map[string]definitionName

type definitionName struct {
	public string
	kinds  []any
}

func newDefinitionNamer(scheme *groupScheme) definitionNamer {
	namer := definitionNamer{}
	for gvk, t := range scheme.AllKnownTypes() {
		public, err := scheme.ToOpenAPIDefinitionName(gvk)
		if err != nil || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		key := schemas.Name(t)
		entry := namer[key]
		entry.public = public
		entry.kinds = append(entry.kinds, map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind})
		namer[key] = entry
	}
	for _, entry := range namer {
		slices.SortFunc(entry.kinds, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return namer
}

func (n definitionNamer) name(name string) (string, spec.Extensions) {
	if known, ok := n[name]; ok {
		return known.public, spec.Extensions{"x-kubernetes-group-version-kind": known.kinds}
	}
	if strings.Contains(name, "/") {
		return util.ToRESTFriendlyName(name), nil
	}
	return name, nil
}
