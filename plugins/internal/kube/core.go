package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/catena-dev/catena/internal/gctune/startgc"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// Core returns the stage core: Kubernetes' built-in resources.
func Core() sdk.Stage {
	hooks := newEarlyHooks()
	stage := Stage("core", "serves Kubernetes' built-in resources", CoreRelease,
		func(env *sdk.Env) (http.Handler, error) { return newCore(env, hooks) })
	stage.Validate = hooks.validate
	return stage
}

func newCore(env *sdk.Env, hooks *earlyHooks) (http.Handler, error) {
	startgc.End() // what is garbage would stay among what is not
	b, err := newBase(env, generatedopenapi.GetOpenAPIDefinitions)
	if err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	addHooks, err := hooks.replace(b.generic)
	if err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	b.options.PeerCAFile = "" // the aggregator passes requests on
	// For TokenReview; requests are authenticated by the host.
	g := b.generic
	if err := b.options.Authentication.ApplyTo(env.Context(), &g.Authentication, g.SecureServing, g.EgressSelector,
		g.OpenAPIConfig, g.OpenAPIV3Config, b.client, b.informers, g.APIServerID); err != nil {
		return nil, fmt.Errorf("core: authentication: %w", err)
	}
	config, _, _, err := app.CreateKubeAPIServerConfig(b.options, g, b.informers, b.storage)
	if err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	// Kubernetes' own server reads the flags for it, and uses --advertise-address.
	config.ControlPlane.PeerAdvertiseAddress = b.options.PeerAdvertiseAddress
	completed := config.Complete()
	endpoints := &completed.Extra.EndpointReconcilerConfig
	endpoints.Reconciler = &servingEndpoints{EndpointReconciler: endpoints.Reconciler, serving: env.Signal("HasBeenReady")}
	v2, v3 := completed.ControlPlane.Generic.OpenAPIConfig, completed.ControlPlane.Generic.OpenAPIV3Config
	completed.ControlPlane.Generic.OpenAPIConfig = nil
	completed.ControlPlane.Generic.SkipOpenAPIInstallation = true
	instance, err := completed.New(b.adapter.Delegate())
	if err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	if err := errors.Join(addHooks(instance.ControlPlane.GenericAPIServer),
		addStorageVersionHook(instance.ControlPlane.GenericAPIServer)); err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	serveOpenAPIv2(instance.ControlPlane.GenericAPIServer, v2)
	documents := serveOpenAPIv3(instance.ControlPlane.GenericAPIServer, v3)
	namespaces := namespaceGate{namespaces: b.client.CoreV1().Namespaces()}
	handler, err := b.adapter.Serve(apiserver.Server{
		GenericAPIServer:    instance.ControlPlane.GenericAPIServer,
		BeforePostStartHook: namespaces.await,
		// They take the server's address and leases out of the cluster.
		PreShutdownWithServer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	env.OnPrepareRun(func(context.Context) error {
		// The aggregator asks for the index as soon as a process takes another's place: a quarter of a second of work
		// would then be in the way of the requests of clients.
		go documents.index()
		return nil
	})
	return b.withDownstream(handler, instance.ControlPlane.GenericAPIServer, v2), nil
}
