// Package builtin has the stages that come with Catena: those of kube-apiserver, and Kubernetes' controllers.
package builtin

import (
	"path/filepath"
	_ "time/tzdata" // for the time zones of CronJobs, where the machine has none

	"github.com/catena-dev/catena/plugins/internal/controllers"
	"github.com/catena-dev/catena/plugins/internal/kube"
	"github.com/catena-dev/catena/sdk"
)

// Aggregator is kube-apiserver's aggregator.
func Aggregator() sdk.Stage {
	return kube.Stage("aggregator", "registers API servers and merges discovery and OpenAPI of the chain",
		kube.AggregatorRelease, kube.NewAggregator)
}

// Core has kube-apiserver's built-in resources.
func Core() sdk.Stage { return kube.Core() }

// Extensions has kube-apiserver's custom resources.
func Extensions() sdk.Stage {
	return kube.Stage("extensions", "serves custom resource definitions and custom resources", kube.ExtensionsRelease, kube.NewExtensions)
}

// Controllers are those of kube-controller-manager.
func Controllers() sdk.Stage { return controllers.Stage() }

// Stages are all of them.
func Stages() []sdk.Stage { return []sdk.Stage{Aggregator(), Core(), Extensions(), Controllers()} }

// Named returns the stage whose plugin has the name of a file, such as /usr/lib/catena/plugins/catena-stage-core.
func Named(file string) (stage sdk.Stage, ok bool) {
	const prefix = "catena-stage-"
	for _, stage := range Stages() {
		if filepath.Base(file) == prefix+stage.Name {
			return stage, true
		}
	}
	return sdk.Stage{}, false
}
