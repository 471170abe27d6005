// Stage core of a Catena chain: kube-apiserver's built-in resources.
package main

import (
	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
)

func main() {
	sdk.Main(kube.Stage("core", "serves Kubernetes' built-in resources", kube.NewCore))
}
