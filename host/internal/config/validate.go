package config

import (
	"errors"
	"maps"
	"slices"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/suggest"
)

// validate checks what takes more than one value to see, and sets the order.
func (m *merger) validate(c *Config) {
	m.validateStore(&c.Store)
	hostFlags := hostFlags()
	for _, flag := range slices.Sorted(maps.Keys(hostFlags)) {
		if _, ok := c.APIServer[flag]; ok {
			m.blame([]string{"apiserver", flag}, "the host sets this flag itself; use %s", hostFlags[flag])
		}
	}
	if !m.problems.incomplete {
		m.validateOrder(c)
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
		m.blame([]string{"store", given}, "needs store.%s besides", missing)
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

func (m *merger) validateOrder(c *Config) {
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
		m.blame([]string{"stages", oe.Stage, "delegate"}, "%s%s", oe.Problem, suggest.DidYouMean(oe.Unknown, names))
	}
}
