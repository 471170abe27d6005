package front

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/catena-dev/catena/host/internal/suggest"
)

// addLoggingGates adds the gates that kube-apiserver's main adds. It fails, without harm,
// once flags have been parsed.
func addLoggingGates() { _ = logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate) }

// knownGates returns the values of feature-gates whose gates exist, and an error for each
// other one. Kubernetes' code would report only one of them, and again whenever this
// process parses flags.
func (f *Flags) knownGates(values []string) ([]string, error) {
	gates := f.options.GenericServerRunOptions.ComponentGlobalsRegistry.FeatureGateFor(compatibility.DefaultKubeComponent)
	if gates == nil {
		return values, nil
	}
	known := gates.DeepCopy().GetAllVersioned()
	var problems []error
	var right []string
	for pair := range strings.SplitSeq(strings.Join(values, ","), ",") {
		gate, _, _ := strings.Cut(strings.TrimPrefix(pair, compatibility.DefaultKubeComponent+":"), "=")
		if gate = strings.TrimSpace(gate); isGate(known, gate) {
			right = append(right, pair)
			continue
		}
		problems = append(problems, fmt.Errorf("%s: kube-apiserver has no feature gate %q%s", key("feature-gates"),
			gate, suggest.DidYouMean(gate, gateNames(known))))
	}
	return right, errors.Join(problems...)
}

// isGate reports whether a gate exists. Gates of other components, and values that are not
// gates, are left to Kubernetes' code.
func isGate(known map[featuregate.Feature]featuregate.VersionedSpecs, name string) bool {
	_, ok := known[featuregate.Feature(name)]
	return ok || name == "" || strings.Contains(name, ":")
}

func gateNames(known map[featuregate.Feature]featuregate.VersionedSpecs) []string {
	var names []string
	for _, gate := range slices.Sorted(maps.Keys(known)) {
		names = append(names, string(gate))
	}
	return names
}
