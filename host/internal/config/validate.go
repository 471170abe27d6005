package config

import (
	"errors"
	"maps"
	"slices"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/suggest"
)

// validate checks the values that depend on each other, and sets the order.
func (m *merger) validate(c *Config) {
	named := disable(c)
	m.validateStore(&c.Store)
	for _, name := range slices.Sorted(maps.Keys(c.Stages)) {
		if key, err := c.Stages[name].Limits.check(); err != nil {
			m.blame([]string{"stages", name, "limits", key}, "%v", err)
		}
	}
	hostFlags := hostFlags()
	for _, flag := range slices.Sorted(maps.Keys(hostFlags)) {
		if _, ok := c.APIServer[flag]; ok {
			m.blame([]string{"apiserver", flag}, "the host sets this flag itself; use %s", hostFlags[flag])
		}
		for _, name := range slices.Sorted(maps.Keys(c.Stages)) {
			if _, ok := c.Stages[name].APIServer[flag]; ok {
				m.blame([]string{"stages", name, "apiserver", flag},
					"the host sets this flag itself, for all stages; use %s", hostFlags[flag])
			}
		}
	}
	if !m.problems.incomplete {
		m.validateOrder(c, named)
	}
}

// blame reports a problem in the layer that the value at path came from.
func (m *merger) blame(path []string, format string, args ...any) {
	m.problems.add(m.culprit(path), path, format, args...)
}

func (m *merger) validateStore(s *Store) {
	if (s.CertFile == "") != (s.KeyFile == "") {
		given, missing := "certFile", "keyFile"
		if s.CertFile == "" {
			given, missing = missing, given
		}
		m.blame([]string{"store", given}, "needs store.%s too", missing)
	}
	if len(s.Endpoints) > 0 {
		return
	}
	for _, f := range []struct{ name, value string }{
		{"caFile", s.CAFile}, {"certFile", s.CertFile}, {"keyFile", s.KeyFile},
	} {
		if f.value != "" {
			m.blame([]string{"store", f.name}, "is for an external cluster, and store.endpoints names none")
		}
	}
}

// disable removes the disabled stages from the chain: the stages that delegate to one delegate to
// its delegate. It returns, for those, the disabled stage that names the delegate.
func disable(c *Config) map[string]string {
	all, named := maps.Clone(c.Stages), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].Disabled {
			c.Disabled = append(c.Disabled, name)
			delete(c.Stages, name)
			continue
		}
		s := all[name]
		for range all { // more steps than that are a cycle
			next, ok := all[s.Delegate]
			if !ok || !next.Disabled {
				break
			}
			named[name], s.Delegate = s.Delegate, next.Delegate
		}
		c.Stages[name] = s
	}
	return named
}

func (m *merger) validateOrder(c *Config, named map[string]string) {
	if len(c.Stages) == 0 && len(c.Disabled) > 0 {
		m.blame([]string{"stages", c.Disabled[0], "disabled"}, "every stage is disabled")
		return
	}
	order, err := chain.Order(c.declarations())
	c.Order = order
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	names := slices.Sorted(maps.Keys(c.Stages))
	for _, err := range joined.Unwrap() {
		var oe *chain.OrderError
		if !errors.As(err, &oe) || oe.Stage == "" {
			m.blame([]string{"stages"}, "%v; --config names the files to read", err)
			continue
		}
		stage := oe.Stage
		if by, ok := named[stage]; ok && oe.Unknown != "" {
			stage = by
		}
		if slices.Contains(c.Disabled, oe.Unknown) {
			m.blame([]string{"stages", stage, "delegate"}, "disabled stages delegate to each other in a cycle")
			continue
		}
		m.blame([]string{"stages", stage, "delegate"}, "%s%s", oe.Problem, suggest.DidYouMean(oe.Unknown, names))
	}
}
