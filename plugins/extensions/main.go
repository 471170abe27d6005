// Stage extensions of a Catena chain: kube-apiserver's custom resources.
package main

import (
	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
)

func main() {
	sdk.Main(kube.Stage("extensions", "serves custom resource definitions and custom resources", kube.NewExtensions))
}
