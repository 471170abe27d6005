package controllers

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/catena-dev/catena/sdk"
)

// withoutNodes are the controllers that run by default: those that have work to do in a cluster without nodes, and
// those that create Pods.
func withoutNodes() []string {
	return []string{
		names.CertificateSigningRequestApprovingController,
		names.CertificateSigningRequestCleanerController,
		names.CertificateSigningRequestSigningController,
		names.ClusterRoleAggregationController,
		names.CronJobController,
		names.DeploymentController,
		names.DisruptionController,
		names.EndpointSliceController,
		names.GarbageCollectorController,
		names.JobController,
		names.LegacyServiceAccountTokenCleanerController,
		names.NamespaceController,
		names.ReplicaSetController,
		names.ResourceQuotaController,
		names.RootCACertificatePublisherController,
		names.ServiceAccountController,
		names.ServiceAccountTokenController,
		names.ServiceCIDRController,
		names.StatefulSetController,
		names.StorageVersionMigratorController,
		names.TTLAfterFinishedController,
	}
}

// The flags of the API server from which defaults of kube-controller-manager's flags follow.
const (
	clientCA       = "client-ca-file"
	signingKey     = "service-account-signing-key-file"
	verbosity      = "v"
	verbosityOf    = "vmodule"
	featureGates   = "feature-gates"
	emulated       = "emulated-version"
	minCompatible  = "min-compatibility-version"
	serviceIPRange = "service-cluster-ip-range"
)

// serverFlags are the flags of the API server that the stage reads.
func serverFlags() []string {
	return []string{clientCA, signingKey, verbosity, verbosityOf, featureGates, emulated, minCompatible, serviceIPRange}
}

// hostFlags are flags of kube-controller-manager that have no meaning here: the host serves, authenticates, logs and connects, and the API
// server's flags say the rest.
func hostFlags(set string, flag string) bool {
	switch set {
	case "secure serving", "authentication", "authorization", "debugging", "leader-migration", "logs", "metrics", "misc":
		return true
	}
	return slices.Contains([]string{
		"controllers", "use-service-account-credentials", "controller-shutdown-timeout", "leader-elect",
		featureGates, emulated, "emulation-forward-compatible", minCompatible,
	}, flag)
}

// parsed is what the configuration and the flags of the API server say.
type parsed struct {
	options *options.KubeControllerManagerOptions
	server  map[string]string
}

// parse returns what is wrong with keys of the configuration, each by itself.
func parse(cfg Config, flags []string) (*parsed, []sdk.ConfigProblem) {
	// As kube-controller-manager's main does; it fails where flags have been parsed before.
	_ = logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate)
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, []sdk.ConfigProblem{{Message: err.Error()}}
	}
	p := &parsed{options: o, server: map[string]string{}}
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		p.server[name] = value
	}
	known, allowed := p.flags()
	names := slices.Sorted(maps.Keys(cfg.Flags))
	problems := p.setDefaults(known, slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "cluster-signing-") && strings.HasSuffix(name, "-file")
	}))
	for _, name := range names {
		key := "flags." + name
		switch flag := allowed.Lookup(name); {
		case flag != nil:
			if err := set(flag, cfg.Flags[name]); err != nil {
				problems = append(problems, sdk.ConfigProblem{Key: key, Message: err.Error()})
			}
		case known.Lookup(name) != nil:
			problems = append(problems, sdk.ConfigProblem{Key: key,
				Message: "is not for this stage: the host serves, logs and connects, and the flags of the API server say the rest"})
		default:
			problems = append(problems, sdk.ConfigProblem{Key: key, Message: "is no flag of kube-controller-manager"})
		}
	}
	problems = append(problems, checkNames(cfg.Controllers)...)
	o.Generic.Controllers = cfg.Controllers
	if len(problems) == 0 {
		if err := o.ComponentGlobalsRegistry.Set(); err != nil { // what Validate says depends on gates
			return p, []sdk.ConfigProblem{{Key: featureGates, Message: err.Error()}}
		}
		if err := o.Validate(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()); err != nil {
			problems = append(problems, sdk.ConfigProblem{Message: err.Error()})
		}
	}
	return p, problems
}

// checkNames finds names of the key controllers that no controller has.
func checkNames(controllers []string) (problems []sdk.ConfigProblem) {
	if len(controllers) == 0 {
		return []sdk.ConfigProblem{{Key: "controllers", Message: "is empty: leave the stage out of the chain instead"}}
	}
	known, aliases := app.KnownControllers(), app.ControllerAliases()
	for i, name := range controllers {
		name = strings.TrimPrefix(name, "-")
		if _, ok := aliases[name]; !ok && name != "*" && !slices.Contains(known, name) {
			problems = append(problems, sdk.ConfigProblem{Key: fmt.Sprintf("controllers[%d]", i),
				Message: fmt.Sprintf("%q is no controller (known: %s)", name, strings.Join(known, ", "))})
		}
	}
	return problems
}

// flags returns all flags of kube-controller-manager, and those that can be set here.
func (p *parsed) flags() (known, allowed *pflag.FlagSet) {
	known, allowed = pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	for name, set := range p.options.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()).FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			known.AddFlag(f)
			if !hostFlags(name, f.Name) {
				allowed.AddFlag(f)
			}
		})
	}
	return known, allowed
}

// setDefaults sets what follows from the API server's flags: where its keys are, gates, the range of addresses.
// signs reports whether the configuration names the authorities that sign.
func (p *parsed) setDefaults(known *pflag.FlagSet, signs bool) (problems []sdk.ConfigProblem) {
	p.options.SecureServing.BindPort = 0
	p.options.KubeCloudShared.UseServiceAccountCredentials = true
	// Each look at the lease is a write, and a candidate hears at once that it is given up.
	p.options.Generic.LeaderElection.RetryPeriod.Duration = 5 * time.Second
	defaults := map[string]string{
		"root-ca-file":                     p.server[clientCA],
		"service-account-private-key-file": p.server[signingKey],
		serviceIPRange:                     p.server[serviceIPRange],
		featureGates:                       p.server[featureGates],
		emulated:                           p.server[emulated],
		minCompatible:                      p.server[minCompatible],
	}
	if key := keyOf(p.server[clientCA]); key != "" && !signs {
		defaults["cluster-signing-cert-file"], defaults["cluster-signing-key-file"] = p.server[clientCA], key
	}
	for name, value := range defaults {
		if value == "" {
			continue
		}
		if err := known.Set(name, value); err != nil {
			problems = append(problems, sdk.ConfigProblem{Key: name, Message: err.Error()})
		}
	}
	return problems
}

// keyOf returns the file with the key of an authority that lies beside its certificate, as kubeadm and the host lay them out; empty if
// there is none.
func keyOf(certificate string) string {
	base, ok := strings.CutSuffix(certificate, ".crt")
	if !ok {
		return ""
	}
	if _, err := os.Stat(base + ".key"); err != nil {
		return ""
	}
	return base + ".key"
}

// set sets a flag to a value of a configuration: a scalar, or a list of them.
func set(flag *pflag.Flag, value any) error {
	values, ok := value.([]any)
	if !ok {
		values = []any{value}
	}
	var texts []string
	for _, v := range values {
		switch v := v.(type) {
		case string:
			texts = append(texts, v)
		case bool:
			texts = append(texts, strconv.FormatBool(v))
		case json.Number:
			texts = append(texts, v.String())
		case float64:
			texts = append(texts, strconv.FormatFloat(v, 'f', -1, 64))
		default:
			return fmt.Errorf("want a string, a number, a bool or a list of them, got %T", v)
		}
	}
	if err := flag.Value.Set(strings.Join(texts, ",")); err != nil {
		return fmt.Errorf("invalid value %q: %w", strings.Join(texts, ","), err)
	}
	return nil
}

// validate checks a configuration.
func validate(config []byte, flags []string) []sdk.ConfigProblem {
	cfg := Stage().Config.(Config)
	if err := sdk.DecodeConfig(config, &cfg); err != nil {
		return []sdk.ConfigProblem{{Message: err.Error()}}
	}
	_, problems := parse(cfg, flags)
	return problems
}
