package apistage

import (
	"fmt"
	"net/url"
	"slices"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// addAdmission runs the plugins of every aggregated API server: the host runs none,
// since only the server of a group knows its types.
func (b *groupBuilder) addAdmission() error {
	plugins := b.flags.enabledPlugins()
	b.rights = newRights(b.env, b.setup.Client, requiredRights(plugins, !b.flags.alwaysAllow()))
	chain := []admission.Interface{b.rights}
	if len(plugins) > 0 {
		if err := b.addUpstreamAdmission(plugins); err != nil {
			return err
		}
		chain = append(chain, b.config.AdmissionControl)
	}
	if b.group.Admission != nil {
		own, err := b.group.Admission(b.setup)
		if err != nil {
			return err
		}
		for _, plugin := range own {
			if err := validateInitialization(plugin); err != nil {
				return err
			}
		}
		chain = append(chain, own...)
	}
	b.config.AdmissionControl = admission.NewChainHandler(chain...)
	return nil
}

func validateInitialization(plugin admission.Interface) error {
	if v, ok := plugin.(admission.InitializationValidator); ok {
		if err := v.ValidateInitialization(); err != nil {
			return fmt.Errorf("plugin %T: %w", plugin, err)
		}
	}
	return nil
}

func (b *groupBuilder) addUpstreamAdmission(plugins []string) error {
	params, err := dynamic.NewForConfig(b.setup.Loopback)
	if err != nil {
		return fmt.Errorf("client for parameters of policies: %w", err)
	}
	var services corelisters.ServiceLister
	if usesWebhooks(plugins) {
		services = b.setup.Informers.Core().V1().Services().Lister()
	}
	webhooks := webhookinitializer.NewPluginInitializer(
		webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, b.config.EgressSelector, b.setup.Loopback, b.config.TracerProvider),
		clusterServices{services})
	return b.flags.admission.ApplyTo(b.config, b.setup.Informers, b.setup.Client, params,
		utilfeature.DefaultFeatureGate, b.config.EffectiveVersion, webhooks)
}

// enabledPlugins are the plugins that will run.
func (f *groupFlags) enabledPlugins() []string {
	var enabled []string
	for _, name := range f.admission.RecommendedPluginOrder {
		if !slices.Contains(f.admission.DisablePlugins, name) || slices.Contains(f.admission.EnablePlugins, name) {
			enabled = append(enabled, name)
		}
	}
	return enabled
}

func usesWebhooks(plugins []string) bool {
	return slices.Contains(plugins, mutatingwebhook.PluginName) || slices.Contains(plugins, validatingwebhook.PluginName)
}

// clusterServices finds services by their cluster addresses.
type clusterServices struct{ services corelisters.ServiceLister }

func (c clusterServices) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveCluster(c.services, namespace, name, port)
}

// readsOf are the resources that plugins read.
var readsOf = map[string][]right{
	lifecycle.PluginName: {{resource: "namespaces"}},
	mutatingpolicy.PluginName: {
		{group: admissionGroup, resource: "mutatingadmissionpolicies"},
		{group: admissionGroup, resource: "mutatingadmissionpolicybindings"}, {resource: "namespaces"},
	},
	validatingpolicy.PluginName: {
		{group: admissionGroup, resource: "validatingadmissionpolicies"},
		{group: admissionGroup, resource: "validatingadmissionpolicybindings"}, {resource: "namespaces"},
	},
	mutatingwebhook.PluginName: {{group: admissionGroup, resource: "mutatingwebhookconfigurations"},
		{resource: "services"}, {resource: "namespaces"}},
	validatingwebhook.PluginName: {{group: admissionGroup, resource: "validatingwebhookconfigurations"},
		{resource: "services"}, {resource: "namespaces"}},
}

const admissionGroup = "admissionregistration.k8s.io"
