package kube

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storageversion"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
)

const (
	identityPoll = 100 * time.Millisecond
	// storageVersionInterval is how often StorageVersions are written again that a client
	// may have changed.
	storageVersionInterval = 10 * time.Minute
	storageVersionPoll     = time.Second
)

// hasStorageVersions reports whether the server writes StorageVersions.
func hasStorageVersions() bool {
	return utilfeature.DefaultFeatureGate.Enabled(genericfeatures.StorageVersionAPI) &&
		utilfeature.DefaultFeatureGate.Enabled(genericfeatures.APIServerIdentity)
}

// withStorageVersions refuses writes of resources whose StorageVersions the server has not
// written yet. In kube-apiserver the aggregator does that for all three servers, which share
// one manager in memory; here each stage does it for the resources that it has.
func withStorageVersions(config *genericapiserver.Config) {
	if !hasStorageVersions() {
		return
	}
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return build(genericapifilters.WithStorageVersionPrecondition(handler, c.StorageVersionManager, c.Serializer), c)
	}
}

// addStorageVersionHook adds the hook that writes the StorageVersions of a server's
// resources. The aggregator's server has it from Kubernetes, which has one for all.
func addStorageVersionHook(server *genericapiserver.GenericAPIServer) error {
	if !hasStorageVersions() {
		return nil
	}
	return server.AddPostStartHook(aggregatorapiserver.StorageVersionPostStartHookName,
		func(hook genericapiserver.PostStartHookContext) error {
			client, err := kubernetes.NewForConfig(hook.LoopbackClientConfig)
			if err != nil {
				return err
			}
			// StorageVersions of a server that has no lease are garbage.
			if err := awaitIdentity(hook, client, server.APIServerID); err != nil {
				return fmt.Errorf("wait for the lease %s of this server: %w", server.APIServerID, err)
			}
			manager := server.StorageVersionManager
			go wait.UntilWithContext(hook, func(context.Context) {
				manager.UpdateStorageVersions(hook.LoopbackClientConfig, server.APIServerID)
			}, storageVersionInterval)
			awaitStorageVersions(hook, manager)
			return nil
		})
}

func awaitIdentity(ctx context.Context, client kubernetes.Interface, lease string) error {
	return wait.PollUntilContextCancel(ctx, identityPoll, true, func(ctx context.Context) (bool, error) {
		// Whatever the error is: the stage that has leases may be down.
		_, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, lease, metav1.GetOptions{})
		return err == nil, nil
	})
}

func awaitStorageVersions(ctx context.Context, manager storageversion.Manager) {
	// It ends without an error when the server does.
	_ = wait.PollUntilContextCancel(ctx, storageVersionPoll, true, func(context.Context) (bool, error) {
		return manager.Completed(), nil
	})
}
