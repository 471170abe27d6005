package kube

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/catena-dev/catena/sdk"
)

// documentsTimeout is how long custom resources that are known and in no document hold up that the stage is complete:
// Kubernetes leaves out those of which it can make none.
const documentsTimeout = 10 * time.Second

// addDocumentsSignal makes the stage complete when it claims all custom resources, and has them in its discovery and
// OpenAPI documents. To Kubernetes' server it is when the definitions are known: the documents were not asked for
// before, which are made a moment later.
func addDocumentsSignal(env *sdk.Env, server *apiextensionsapiserver.CustomResourceDefinitions, claims *extensionsClaims) error {
	made := make(chan struct{})
	if err := server.GenericAPIServer.RegisterMuxAndDiscoveryCompleteSignal("CustomResourceDocuments", made); err != nil {
		return err
	}
	definitions := server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	return server.GenericAPIServer.AddPostStartHook("custom-resource-documents", func(hook genericapiserver.PostStartHookContext) error {
		defer close(made)
		defer claims.update()
		var late <-chan time.Time
		for {
			synced := definitions.Informer().HasSynced() // before they are listed
			all, err := definitions.Lister().List(labels.Everything())
			lacking := delegates.Lacking(hook, server.GenericAPIServer.UnprotectedHandler(), servedVersions(all))
			if synced && err == nil && len(lacking) == 0 {
				return nil
			}
			if synced && late == nil {
				late = time.After(documentsTimeout)
			}
			select {
			case <-hook.Done():
				return nil
			case <-late:
				env.Log.Warn("the documents of discovery and OpenAPI lack custom resources", "lacking", lacking, "error", err)
				return nil
			case <-time.After(openAPIPoll):
			}
		}
	})
}

// servedVersions are the versions of custom resources that the server serves.
func servedVersions(definitions []*apiextensionsv1.CustomResourceDefinition) []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, crd := range definitions {
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if gv := (schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}); v.Served && !slices.Contains(versions, gv) {
				versions = append(versions, gv)
			}
		}
	}
	return versions
}
