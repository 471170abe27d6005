// Stage aggregator of a Catena chain: kube-apiserver's aggregator.
package main

import (
	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
)

func main() {
	sdk.Main(kube.Stage("aggregator", "registers API servers and merges discovery and OpenAPI of the chain", kube.NewAggregator))
}
