package apistage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// groupFlags are the flags of the API server that concern an API group. The host has
// validated all of them.
type groupFlags struct {
	etcd               *options.EtcdOptions
	admission          *options.AdmissionOptions
	egress             *options.EgressSelectorOptions
	authorizationModes []string
	verbosity, vmodule string
}

// storePrefix is the default of etcd-prefix.
const storePrefix = "/registry"

func parseGroupFlags(flags []string) (*groupFlags, error) {
	f := &groupFlags{
		etcd:      options.NewEtcdOptions(storagebackend.NewDefaultConfig(storePrefix, nil)),
		admission: options.NewAdmissionOptions(),
		egress:    options.NewEgressSelectorOptions(),
	}
	var gates []string
	set := pflag.NewFlagSet("group", pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	f.etcd.AddFlags(set)
	f.admission.AddFlags(set)
	f.egress.AddFlags(set)
	set.StringSliceVar(&f.authorizationModes, "authorization-mode", nil, "")
	set.StringVar(&f.verbosity, "v", "0", "")
	set.StringVar(&f.vmodule, "vmodule", "", "")
	set.StringSliceVar(&gates, "feature-gates", nil, "")
	arguments := make([]string, len(flags))
	for i, flag := range flags {
		arguments[i] = "--" + flag
	}
	if err := set.Parse(arguments); err != nil {
		return nil, err
	}
	f.dropUnknownPlugins()
	// Those are of resources that are compiled into kube-apiserver.
	f.etcd.EtcdServersOverrides = nil
	f.etcd.WatchCacheSizes = nil
	return f, setFeatureGates(gates)
}

// groupFlagNames are the flags that parseGroupFlags reads, but for those about the store.
func groupFlagNames() []string {
	set := pflag.NewFlagSet("group", pflag.ContinueOnError)
	options.NewAdmissionOptions().AddFlags(set)
	options.NewEgressSelectorOptions().AddFlags(set)
	names := []string{"authorization-mode", "v", "vmodule", "feature-gates"}
	set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return slices.Sorted(slices.Values(names))
}

// alwaysAllow reports whether the server allows everything to everyone.
func (f *groupFlags) alwaysAllow() bool {
	return slices.Equal(f.authorizationModes, []string{"AlwaysAllow"})
}

// dropUnknownPlugins leaves the admission plugins that kube-apiserver alone has.
func (f *groupFlags) dropUnknownPlugins() {
	known := f.admission.Plugins.Registered()
	unknown := func(name string) bool { return !slices.Contains(known, name) }
	f.admission.EnablePlugins = slices.DeleteFunc(f.admission.EnablePlugins, unknown)
	f.admission.DisablePlugins = slices.DeleteFunc(f.admission.DisablePlugins, unknown)
}

// setFeatureGates sets those gates that this program has. Kubernetes' libraries have
// them in a global.
func setFeatureGates(gates []string) error {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	var ours []string
	for _, gate := range gates {
		gate = strings.TrimPrefix(gate, "kube:")
		name, _, _ := strings.Cut(gate, "=")
		for feature := range known {
			if string(feature) == name {
				ours = append(ours, gate)
			}
		}
	}
	if len(ours) == 0 {
		return nil
	}
	if err := utilfeature.DefaultMutableFeatureGate.Set(strings.Join(ours, ",")); err != nil {
		return fmt.Errorf("feature gates: %w", err)
	}
	return nil
}
