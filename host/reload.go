package main

import (
	"context"
	"fmt"
	"os/signal"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// reloadOnHangup applies the configuration as it is by then, whenever SIGHUP comes.
func (s *server) reloadOnHangup(ctx context.Context) {
	defer signal.Stop(s.hangup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hangup:
		}
		swapped, err := s.reload(ctx)
		if err != nil {
			s.log.Error("configuration not applied", "swapped", swapped, "error", err)
			continue
		}
		s.log.Info("configuration applied", "swapped", swapped)
	}
}

// reload reads the configuration and swaps the stages that it changes, and those
// whose binary has changed, from the tail to the head. A configuration that is
// wrong, or changes anything else, changes nothing; after a swap that fails, those
// before it stand. It returns the stages that it has swapped.
func (s *server) reload(ctx context.Context) (swapped []string, err error) {
	cfg, err := s.load()
	if err != nil {
		return nil, err
	}
	wanted, err := specs(cfg, s.attach)
	if err != nil {
		return nil, err
	}
	changed, fixed := compare(s.cfg, cfg)
	if len(fixed) > 0 {
		return nil, fmt.Errorf("needs a restart of the host: %s", strings.Join(fixed, ", "))
	}
	for _, spec := range slices.Backward(wanted) {
		if spec.Attach != "" {
			continue
		}
		digest, err := process.Digest(spec.Binary)
		if err != nil {
			return swapped, err
		}
		if !changed[spec.Name] && digest == s.digests[spec.Name] {
			continue
		}
		if _, err := s.stages.Swap(ctx, spec.Name, supervisor.SwapOptions{Change: func(old *supervisor.Spec) { *old = spec }}); err != nil {
			return swapped, err
		}
		s.digests[spec.Name] = digest
		swapped = append(swapped, spec.Name)
	}
	s.cfg = cfg
	return swapped, nil
}

// compare returns the stages whose part of the configuration differs, and the keys
// that differ and that only a restart applies.
func compare(was, is *config.Config) (stages map[string]bool, fixed []string) {
	values := func(c *config.Config) map[string]string {
		m := map[string]string{}
		for _, s := range c.Effective() {
			m[s.Key] = s.Text()
		}
		return m
	}
	before, after := values(was), values(is)
	stages = map[string]bool{}
	differs := func(key string) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(key, "stages."), ".")
		_, old := was.Stages[name]
		_, current := is.Stages[name]
		if ok && strings.HasPrefix(key, "stages.") && rest != "delegate" && old && current {
			stages[name] = true
		} else if !slices.Contains(fixed, key) {
			fixed = append(fixed, key)
		}
	}
	for key, value := range before {
		if now, ok := after[key]; !ok || now != value {
			differs(key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			differs(key)
		}
	}
	slices.Sort(fixed)
	return stages, fixed
}

// noteDigests keeps what the running binaries are, to know them from later ones.
func (s *server) noteDigests() error {
	s.digests = map[string]string{}
	for _, spec := range s.specs {
		if spec.Attach != "" {
			continue
		}
		digest, err := process.Digest(spec.Binary)
		if err != nil {
			return err
		}
		s.digests[spec.Name] = digest
	}
	return nil
}
