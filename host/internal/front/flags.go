package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/catena-dev/catena/host/internal/suggest"
)

// Flags are kube-apiserver's flags: those that the operator has set, and the
// defaults of this server for the others. There is one set of feature gates per
// process, so that parsing flags changes the process.
type Flags struct {
	options *options.ServerRunOptions
	named   cliflag.NamedFlagSets
	all     *pflag.FlagSet
	// values are the values of the flags that are set, as they were set.
	values map[string][]string
	// operator has the flags that the operator has set.
	operator map[string]bool
	// asked and defaults are the arguments of ParseFlags.
	asked    map[string][]string
	defaults []Default
	// kubernetes is set if errors are Kubernetes' own.
	kubernetes bool
}

// ParseFlags parses the flags that the operator has set, name → values without
// leading dashes, and then the defaults for those that are not. Several values of
// a flag are its elements if it is a list, and are joined by commas if it is a
// string that kube-apiserver takes apart itself. The error joins all problems,
// each of which names apiserver.FLAG, and those that Validate finds in the other flags.
func ParseFlags(ctx context.Context, operator map[string][]string, defaults ...Default) (*Flags, error) {
	f, err := parseFlags(operator, defaults)
	if err != nil {
		return nil, joinUnique([]error{err, f.Validate(ctx)})
	}
	return f, nil
}

// parseFlags sets all flags that it can.
func parseFlags(operator map[string][]string, defaults []Default) (*Flags, error) {
	addLoggingGates()
	f := &Flags{
		options:  options.NewServerRunOptions(),
		all:      pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError),
		values:   map[string][]string{},
		operator: map[string]bool{},
		asked:    operator,
		defaults: defaults,

		kubernetes: slices.ContainsFunc(defaults, func(d Default) bool { return d.Kubernetes }),
	}
	f.all.SetOutput(io.Discard)
	f.named = f.options.Flags()
	for _, set := range f.named.FlagSets {
		f.all.AddFlagSet(set)
	}
	var problems []error
	for _, name := range sortedKeys(operator) {
		f.operator[name] = true
		values := operator[name]
		if name == "feature-gates" {
			var err error
			values, err = f.knownGates(values)
			problems = append(problems, err)
		}
		problems = append(problems, f.set(name, values))
	}
	for _, d := range defaults {
		problems = append(problems, f.setDefault(d))
	}
	problems = append(problems, f.setAdvertiseAddress())
	if err := f.options.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		for _, err := range f.configErrors(err) {
			if len(keysIn(err)) == 0 {
				err = fmt.Errorf("%s: %w", key("feature-gates"), err)
			}
			problems = append(problems, err)
		}
	}
	return f, errors.Join(problems...)
}

// key returns the key of a flag in the configuration.
func key(flag string) string { return "apiserver." + flag }

func (f *Flags) set(name string, values []string) error {
	flag := f.all.Lookup(name)
	if flag == nil {
		return fmt.Errorf("%s: kube-apiserver has no such flag%s", key(name), suggest.DidYouMean(name, f.names()))
	}
	values, err := elements(flag, values)
	if err != nil {
		return err
	}
	for _, value := range values {
		if err := flag.Value.Set(value); err != nil {
			return fmt.Errorf("%s: invalid value %q: %w", key(name), value, suggest.Value(err))
		}
		flag.Changed = true
	}
	f.values[name] = values
	return nil
}

// elements returns the values with which a flag has to be set one after another.
func elements(flag *pflag.Flag, values []string) ([]string, error) {
	if len(values) == 0 {
		return []string{""}, nil
	}
	if len(values) == 1 {
		return values, nil
	}
	switch kind := flag.Value.Type(); {
	case kind == "string", kind == "pattern=N,...":
		return []string{strings.Join(values, ",")}, nil
	case takesOne(kind):
		return nil, fmt.Errorf("%s: takes one value, not %d", key(flag.Name), len(values))
	default:
		return values, nil
	}
}

// takesOne reports whether another use of a flag of this type replaces the earlier ones.
func takesOne(kind string) bool {
	switch kind {
	case "string", "Level", "bool", "duration", "float32", "float64", "int", "int32", "int64", "uint", "ip", "portRange", "quantity":
		return true
	}
	return false
}

func (f *Flags) setDefault(d Default) error {
	for _, name := range d.names() {
		if f.operator[name] {
			return nil
		}
	}
	values := map[string][]string{}
	for _, flag := range d.Flags {
		name, value, _ := strings.Cut(flag, "=")
		values[name] = append(values[name], value)
	}
	var problems []error
	for _, name := range sortedKeys(values) {
		problems = append(problems, f.set(name, values[name]))
	}
	return errors.Join(problems...)
}

// setAdvertiseAddress decides once for all processes under which address others
// reach the server. Unlike kube-apiserver, this one also starts on a machine that
// has no network: then the service "kubernetes" has no endpoints.
func (f *Flags) setAdvertiseAddress() error {
	const advertised, reconciler = "advertise-address", "endpoint-reconciler-type"
	ip, byDefault := f.options.GenericServerRunOptions.AdvertiseAddress, false
	if ip == nil || ip.IsUnspecified() {
		var err error
		if ip, err = f.options.SecureServing.DefaultExternalAddress(); err != nil {
			ip = net.IPv4(127, 0, 0, 1)
		}
		if err := f.set(advertised, []string{ip.String()}); err != nil {
			return err
		}
		byDefault = !f.IsSetByOperator(reconciler)
	}
	switch {
	case f.kubernetes || isEndpoint(ip) || f.Value(reconciler) == "none":
		return nil
	case byDefault:
		return f.set(reconciler, []string{"none"})
	}
	return fmt.Errorf("%s: others cannot reach %s, so it cannot be an endpoint of the service \"kubernetes\": "+
		"with %s: none, there is no endpoint", key(advertised), ip, key(reconciler))
}

// isEndpoint reports whether Kubernetes takes an address for that of an endpoint.
func isEndpoint(ip net.IP) bool {
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsLinkLocalMulticast()
}

func (f *Flags) names() []string {
	var names []string
	f.all.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return names
}

// Print logs all flags at verbosity 1, as kube-apiserver does.
func (f *Flags) Print() { cliflag.PrintFlags(f.all) }

// List returns the flags that are set, as name=value, sorted by name. A flag that
// takes several values is there once for each. Another process that parses them
// arrives at the same configuration.
func (f *Flags) List() []string {
	var list []string
	for _, name := range sortedKeys(f.values) {
		for _, value := range f.values[name] {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// Value returns the value of a flag, set or not, as kube-apiserver prints it.
func (f *Flags) Value(name string) string {
	if flag := f.all.Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}

// Values returns the values of a flag that is set, one for each of its uses.
func (f *Flags) Values(name string) []string { return f.values[name] }

// IsSetByOperator reports whether the operator, and not a default, has set a flag.
func (f *Flags) IsSetByOperator(name string) bool { return f.operator[name] }

// Deprecated returns a warning for each flag that the operator has set and that
// kube-apiserver is going to remove.
func (f *Flags) Deprecated() []string {
	var warnings []string
	for _, name := range sortedKeys(f.operator) {
		if flag := f.all.Lookup(name); flag.Deprecated != "" {
			warnings = append(warnings, fmt.Sprintf("%s is deprecated: %s", key(name), flag.Deprecated))
		}
	}
	return warnings
}

// Hosts returns the names and addresses under which clients may reach the server,
// for its certificate.
func (f *Flags) Hosts() []string {
	hosts := []string{f.options.SecureServing.BindAddress.String()}
	for _, name := range []string{"advertise-address", "external-hostname"} {
		if value := f.Value(name); value != "" && value != "<nil>" {
			hosts = append(hosts, value)
		}
	}
	for _, cidr := range strings.Split(f.options.ServiceClusterIPRanges, ",") {
		if ip := firstServiceIP(cidr); ip != nil {
			hosts = append(hosts, ip.String())
		}
	}
	return hosts
}

// setPort records the port that was bound.
func (f *Flags) setPort(port int) error {
	return f.set("secure-port", []string{strconv.Itoa(port)})
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
