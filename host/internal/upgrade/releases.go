package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// compareReleases compares what the binaries describe.
func (p *Plan) compareReleases(in Input) error {
	from, err := version.ParseSemantic(p.From)
	if err != nil {
		return fmt.Errorf("release of the process that serves: %w", err)
	}
	to, err := version.ParseSemantic(p.To)
	if err != nil {
		return fmt.Errorf("release of the binary: %w", err)
	}
	// As kube-apiservers of one cluster may differ: https://kubernetes.io/releases/version-skew-policy
	if d := int(to.Minor()) - int(from.Minor()); to.Major() != from.Major() || d < -1 || d > 1 {
		p.add(Finding{Topic: Skew, Name: p.To, Blocks: true,
			Detail: fmt.Sprintf("is not a neighbour of %s: servers of one cluster are at most one minor release apart", p.From)})
	}
	for _, n := range in.Beside {
		v, err := version.ParseSemantic(n.Release)
		if err != nil {
			continue // it is of no release
		}
		if d := int(to.Minor()) - int(v.Minor()); to.Major() != v.Major() || d < -1 || d > 1 {
			p.add(Finding{Topic: Skew, Name: n.Name, Blocks: true, Detail: fmt.Sprintf(
				"is of %s: servers of one cluster, and the parts of one, are at most one minor release apart; take it to a neighbour of %s first", n.Release, p.To)})
		}
	}
	if err := p.compareControllers(in, from); err != nil {
		return err
	}
	p.compareSettings(in)
	if in.Emulated != "" {
		p.add(Finding{Topic: Back, Name: "emulation", Detail: fmt.Sprintf("%s serves, and writes, as %s until catena upgrade finalize: the way back is safe until then", p.To, in.Emulated)})
		return nil
	}
	was := gates(in.Old.Release)
	for name, on := range gates(in.New.Release) {
		if before, known := was[name]; known && before != on {
			p.add(Finding{Topic: Defaults, Name: name, Detail: fmt.Sprintf("feature gate: the default is %s, and was %s", on, before)})
		}
	}
	return nil
}

// compareControllers finds whether the controllers fit what the new process serves: they may be one minor release
// older, and not newer, see https://kubernetes.io/releases/version-skew-policy. What does not fit the old one either is
// not in the way.
func (p *Plan) compareControllers(in Input, from *version.Version) error {
	c := in.Controllers
	if c.Along != "" {
		p.add(Finding{Topic: Skew, Name: c.Name, Detail: "goes along, to " + c.Along})
		return nil
	}
	v, err := version.ParseSemantic(c.Release)
	if err != nil {
		return nil // there are no controllers, or they are of no release
	}
	serves, err := version.ParseGeneric(cmp.Or(in.Emulated, p.To))
	if err != nil {
		return fmt.Errorf("release that is emulated: %w", err)
	}
	newer := func(than *version.Version) bool { return v.Minor() > than.Minor() || v.Major() != than.Major() }
	older := func(than *version.Version) bool { return v.Minor()+1 < than.Minor() }
	f := Finding{Topic: Skew, Name: c.Name}
	switch {
	case newer(serves):
		f.Blocks = !newer(from)
		f.Detail = fmt.Sprintf("is of %s: controllers must not be newer than what they are clients of; put those of "+
			"%d.%d beside the binary, as catena-stage-controllers, and they go along, or swap them first",
			c.Release, serves.Major(), serves.Minor())
	case older(serves):
		f.Blocks = !older(from)
		f.Detail = fmt.Sprintf("is of %s: controllers are at most one minor release older than what they are clients "+
			"of; swap them to those of %s first", c.Release, p.From)
	default:
		return nil
	}
	p.add(f)
	return nil
}

// compareSettings finds what is set and not known.
func (p *Plan) compareSettings(in Input) {
	knownGates := gates(in.New.Release)
	for _, flag := range in.Flags {
		name, value, _ := strings.Cut(flag, "=")
		if !slices.Contains(in.New.Release.GetFlags(), name) {
			p.add(Finding{Topic: Settings, Name: "apiserver." + name, Blocks: true, Detail: "the new release does not know the flag"})
			continue
		}
		switch name {
		case "feature-gates":
			for gate := range strings.SplitSeq(value, ",") {
				gate, _, _ = strings.Cut(gate, "=")
				gate = gate[strings.LastIndex(gate, ":")+1:] // component:gate
				if knownGates[gate] == "" && gate != "AllAlpha" && gate != "AllBeta" {
					p.add(Finding{Topic: Settings, Name: gate, Blocks: true,
						Detail: "the new release does not know the feature gate of apiserver.feature-gates"})
				}
			}
		case "enable-admission-plugins", "disable-admission-plugins":
			for plugin := range strings.SplitSeq(value, ",") {
				if plugin != "" && !slices.Contains(in.New.Release.GetAdmissionPlugins(), plugin) {
					p.add(Finding{Topic: Settings, Name: plugin, Blocks: true,
						Detail: "the new release does not know the admission plugin of apiserver." + name})
				}
			}
		}
	}
}

func gates(k *stagev1.Kubernetes) map[string]string {
	all := map[string]string{}
	for _, gate := range k.GetFeatureGates() {
		name, on, _ := strings.Cut(gate, "=")
		all[name] = on
	}
	return all
}
