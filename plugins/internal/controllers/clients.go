package controllers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/catena-dev/catena/sdk"
)

// newClientConfig returns the configuration of clients of the server as the user of kube-controller-manager, which has the
// rights of its role in RBAC and not those of the stage.
func newClientConfig(env *sdk.Env, connection componentbaseconfig.ClientConnectionConfiguration) *rest.Config {
	return &rest.Config{
		Host:        "http://catena", // any name: all connections go to the host's socket
		Transport:   env.Client().Transport,
		Impersonate: rest.ImpersonationConfig{UserName: user.KubeControllerManager},
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: connection.AcceptContentTypes,
			ContentType:        connection.ContentType,
		},
		QPS: connection.QPS, Burst: int(connection.Burst),
	}
}

// ownIdentities gives each controller clients as the service account of its name, as the flag
// use-service-account-credentials of kube-controller-manager does. It takes no token for that: the stage may impersonate.
type ownIdentities struct{ config *rest.Config }

func (o ownIdentities) as(name string) clientbuilder.SimpleControllerClientBuilder {
	config := rest.CopyConfig(o.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: serviceaccount.MakeUsername(metav1.NamespaceSystem, name)}
	return clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
}

// Config returns the configuration of a controller's clients.
func (o ownIdentities) Config(name string) (*rest.Config, error) { return o.as(name).Config(name) }

// ConfigOrDie is Config.
func (o ownIdentities) ConfigOrDie(name string) *rest.Config { return o.as(name).ConfigOrDie(name) }

// Client returns a controller's client.
func (o ownIdentities) Client(name string) (kubernetes.Interface, error) {
	return o.as(name).Client(name)
}

// ClientOrDie is Client, and ends the process on an error.
func (o ownIdentities) ClientOrDie(name string) kubernetes.Interface {
	return o.as(name).ClientOrDie(name)
}

// DiscoveryClient returns a controller's client of discovery.
func (o ownIdentities) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	return o.as(name).DiscoveryClient(name)
}

// DiscoveryClientOrDie is DiscoveryClient, and ends the process on an error.
func (o ownIdentities) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	return o.as(name).DiscoveryClientOrDie(name)
}
