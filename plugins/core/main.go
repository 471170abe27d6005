// Stage core of a Catena chain: kube-apiserver's built-in resources.
package main

import (
	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

func main() {
	sdk.Main(sdk.Stage{
		Name:    "core",
		Version: kubeversion.Release(),
		Summary: "serves Kubernetes' built-in resources",
		New:     kube.NewCore,
	})
}
