package system

import (
	"fmt"
	"net/http"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/sample-apiserver/pkg/apis/wardle"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	wardleserver "k8s.io/sample-apiserver/pkg/apiserver"
	sampleopenapi "k8s.io/sample-apiserver/pkg/generated/openapi"
	"k8s.io/sample-apiserver/pkg/registry"
	"k8s.io/sample-apiserver/pkg/registry/wardle/fischer"
	"k8s.io/sample-apiserver/pkg/registry/wardle/flunder"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// newWardle makes the API group of Kubernetes' sample API server a stage, as a third
// party would its own.
func newWardle(env *sdk.Env) (http.Handler, error) {
	adapter, err := apiserver.New(env)
	if err != nil {
		return nil, err
	}
	config := genericapiserver.NewConfig(wardleserver.Codecs)
	config.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("1.2", "", "")
	namer := openapi.NewDefinitionNamer(wardleserver.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(sampleopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(sampleopenapi.GetOpenAPIDefinitions, namer)
	adapter.Configure(config)
	if err := useEtcd(config, env.Flags()); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	server, err := config.Complete(nil).New(env.Name, adapter.Delegate())
	if err != nil {
		return nil, err
	}
	if err := server.InstallAPIGroup(wardleGroup(config)); err != nil {
		return nil, err
	}
	return adapter.Serve(apiserver.Server{GenericAPIServer: server})
}

// useEtcd stores the group's objects where the Kubernetes stages store theirs.
func useEtcd(config *genericapiserver.Config, flags []string) error {
	etcd := options.NewEtcdOptions(storagebackend.NewDefaultConfig("", wardleserver.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)))
	set := pflag.NewFlagSet("wardle", pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	etcd.AddFlags(set)
	var arguments []string
	for _, flag := range flags {
		arguments = append(arguments, "--"+flag)
	}
	if err := set.Parse(arguments); err != nil {
		return err
	}
	return etcd.ApplyTo(config)
}

func wardleGroup(config *genericapiserver.Config) *genericapiserver.APIGroupInfo {
	group := genericapiserver.NewDefaultAPIGroupInfo(wardle.GroupName, wardleserver.Scheme, metav1.ParameterCodec, wardleserver.Codecs)
	flunders := func() rest.Storage {
		return registry.RESTInPeace(flunder.NewREST(wardleserver.Scheme, config.RESTOptionsGetter))
	}
	group.VersionedResourcesStorageMap["v1alpha1"] = map[string]rest.Storage{
		"flunders": flunders(),
		"fischers": registry.RESTInPeace(fischer.NewREST(wardleserver.Scheme, config.RESTOptionsGetter)),
	}
	group.VersionedResourcesStorageMap["v1beta1"] = map[string]rest.Storage{"flunders": flunders()}
	return &group
}
