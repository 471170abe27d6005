package kube

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/flagz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the flags of --logging-format=json
	"k8s.io/component-base/metrics"
	// registers the metrics of clients, queues and leader election, as kube-apiserver does
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/klogr"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// newOptions parses the flags of the API server, which the host has validated,
// and puts what is global in Kubernetes' libraries into effect: feature gates,
// emulated version, logging.
func newOptions(ctx context.Context, env *sdk.Env) (options.CompletedOptions, error) {
	o, err := parse(env.Flags())
	if err != nil {
		return options.CompletedOptions{}, err
	}
	if err := klogr.Install(env.Log, strconv.FormatUint(uint64(o.Logs.Verbosity), 10),
		logsapi.VModuleConfigurationPflag(&o.Logs.VModule).String()); err != nil {
		return options.CompletedOptions{}, err
	}
	logVersions()
	registry := o.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return options.CompletedOptions{}, fmt.Errorf("set feature gates: %w", err)
	}
	// A client in a stage has no user to warn.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	// The host does it, for all stages together.
	o.Features.EnablePriorityAndFairness = false
	if reflect.DeepEqual(o.Metrics, metrics.NewOptions()) {
		o.Metrics = nil // Kubernetes logs an error if it has nothing to apply
	}
	// No port is opened here: without one no certificate is made or read either.
	secure := *o.SecureServing.SecureServingOptions
	secure.BindPort = 0
	o.SecureServing.SecureServingOptions = &secure

	completed, err := o.Complete(ctx)
	if err != nil {
		return options.CompletedOptions{}, fmt.Errorf("complete options: %w", err)
	}
	if gate, ok := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent).(featuregate.MutableFeatureGate); ok {
		gate.AddMetrics()
	}
	registry.AddMetrics()
	return completed, nil
}

// logVersions logs what kube-apiserver logs when it starts.
func logVersions() {
	klog.InfoS("Version", "version", kubeversion.Release())
	klog.InfoS("Golang settings", "GOGC", os.Getenv("GOGC"), "GOMAXPROCS", os.Getenv("GOMAXPROCS"), "GOTRACEBACK", os.Getenv("GOTRACEBACK"))
}

func parse(flags []string) (*options.ServerRunOptions, error) {
	o, set := newFlags()
	arguments := make([]string, len(flags))
	for i, f := range flags {
		arguments[i] = "--" + f
	}
	if err := set.Parse(arguments); err != nil {
		return nil, fmt.Errorf("flags of the API server: %w", err)
	}
	return o, nil
}

// newFlags returns kube-apiserver's options, and the flags that set them.
func newFlags() (*options.ServerRunOptions, *pflag.FlagSet) {
	// As kube-apiserver's main does; it fails where flags have been parsed before.
	_ = logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate)
	o := options.NewServerRunOptions()
	set := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	named := o.Flags()
	o.Flagz = flagz.NamedFlagSetsReader{FlagSets: named}
	for _, f := range named.FlagSets {
		set.AddFlagSet(f)
	}
	return o, set
}
