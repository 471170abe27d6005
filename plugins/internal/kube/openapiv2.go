package kube

import (
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// serveOpenAPIv2 serves the document of all that the server has by then, which is built at the first
// request: most clients ask for those of v3. GenericAPIServer would build it before it
// serves, and keep it; config must not be its own, for that reason.
func serveOpenAPIv2(server *genericapiserver.GenericAPIServer, config *common.Config) {
	build := func() (*spec.Swagger, string, error) {
		services := restfuladapter.AdaptWebServices(server.Handler.GoRestfulContainer.RegisteredWebServices())
		document, err := builder.BuildOpenAPISpecFromRoutes(services, config)
		if err != nil {
			return nil, "", err
		}
		document.Definitions = handler.PruneDefaults(document.Definitions)
		return document, "static", nil
	}
	handler.NewOpenAPIServiceLazy(cached.Once(cached.Func(build))).
		RegisterOpenAPIVersionedService(openAPIv2, server.Handler.NonGoRestfulMux)
}
