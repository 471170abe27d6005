// Stage aggregator of a Catena chain: kube-apiserver's aggregator.
package main

import (
	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

func main() {
	sdk.Main(sdk.Stage{
		Name:    "aggregator",
		Version: kubeversion.Release(),
		Summary: "registers API servers and merges discovery and OpenAPI of the chain",
		New:     kube.NewAggregator,
	})
}
