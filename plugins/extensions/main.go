// Stage extensions of a Catena chain: kube-apiserver's custom resources.
package main

import (
	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

func main() {
	sdk.Main(sdk.Stage{
		Name:    "extensions",
		Version: kubeversion.Release(),
		Summary: "serves custom resource definitions and custom resources",
		New:     kube.NewExtensions,
	})
}
