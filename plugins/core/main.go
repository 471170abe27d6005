// Stage core of a Catena chain: kube-apiserver's built-in resources.
package main

import (
	_ "time/tzdata" // for the time zones of CronJobs, where the machine has none

	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
)

func main() {
	sdk.Main(kube.Stage("core", "serves Kubernetes' built-in resources", kube.NewCore))
}
