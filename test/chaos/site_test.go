package chaos

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// Kubernetes' stages are always there; the passers come and go.
var (
	kube    = []string{"aggregator", "core", "extensions"}
	passers = []string{"passer-a", "passer-b"}
)

const (
	// liveness is the stages' livenessTimeout, which is the default. A shorter one makes
	// events shorter, but on a busy machine it kills stages that do not get the processor.
	liveness = 15 * time.Second
	// drainTimeout is how long streams survive the swap of their stage.
	drainTimeout = 8 * time.Second
	// recovery bounds the time from an event to a server that is ready again.
	recovery = 60 * time.Second
	// openFiles is how many descriptors the host may have, and maxMemory how many bytes it may hold.
	openFiles = 4096
	maxMemory = 1 << 30
)

// chain is the part of the configuration file about the stages.
type chain struct {
	order    []string // head to tail
	standby  []string
	greeting int // of the passers
}

func (c chain) clone() chain {
	c.order, c.standby = slices.Clone(c.order), slices.Clone(c.standby)
	return c
}

func (c chain) String() string {
	var b strings.Builder
	b.WriteString("apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nwatchPlugins: true\nlog: {stageLevel: error}\nstages:\n")
	for i, name := range c.order {
		fmt.Fprintf(&b, "  %s:\n    lock: off\n    livenessTimeout: %s\n    drainTimeout: %s\n    drainSpread: 1s\n", name, liveness, drainTimeout)
		if i+1 < len(c.order) {
			fmt.Fprintf(&b, "    delegate: %s\n", c.order[i+1])
		}
		if name == "core" {
			b.WriteString("    watches: verify\n")
		}
		if slices.Contains(c.standby, name) {
			b.WriteString("    standby: true\n")
		}
		if slices.Contains(passers, name) {
			b.WriteString("    grants: {claims: [\"/**\"], systemRequests: true}\n")
			fmt.Fprintf(&b, "    config: {greeting: \"%d\"}\n", c.greeting)
		}
	}
	return b.String()
}

// site is a Catena whose configuration and plugins the test changes.
type site struct {
	*cluster.Catena
	config, plugins string
	chain           chain
	core            string                   // minor release of Kubernetes of core, "" for that of go.mod
	random          *rand.Rand               // makes all choices
	swaps           map[string]time.Duration // duration of the latest swap of a stage
}

// startSite starts a Catena with its files in a directory, and with core of a minor release of Kubernetes.
func startSite(ctx context.Context, dir string, random *rand.Rand, core string) (*site, error) {
	s := &site{random: random, core: core, swaps: map[string]time.Duration{}, config: filepath.Join(dir, "catena.yaml"), plugins: filepath.Join(dir, "plugins"), chain: chain{order: slices.Clone(kube)}}
	if err := errors.Join(os.Mkdir(s.plugins, 0o755), s.installPlugins(), s.write(s.chain.String())); err != nil {
		return nil, err
	}
	o := cluster.Options{ConfigFile: s.config, PluginDirs: []string{s.plugins}, OwnPlugins: true, OpenFiles: openFiles}
	if *duration == 0 {
		// In CI, beside others who build, core may take longer to start than the default of ten seconds.
		o.Set = []string{"holdTimeout=25s"}
	}
	var err error
	s.Catena, err = cluster.StartCatena(ctx, o)
	return s, err
}

func (s *site) installPlugins() error {
	for _, name := range slices.Concat(kube, passers) {
		if err := s.replaceBinary(name, false); err != nil {
			return err
		}
	}
	return nil
}

// replaceBinary puts a binary of the stage into the plugin directory, by a rename. If fresh
// is set, it differs from those before it.
func (s *site) replaceBinary(stage string, fresh bool) error {
	source, err := os.Executable()
	switch {
	case stage == "core":
		source, err = cluster.Stage(stage, s.core)
	case slices.Contains(kube, stage):
		source, err = cluster.Stage(stage, "")
	}
	if err != nil {
		return err
	}
	path := filepath.Join(s.plugins, "catena-stage-"+stage)
	if err := copyFile(path+".new", source, fresh); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// copyFile copies a program. Bytes appended to it change its digest.
func copyFile(to, from string, fresh bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	syscall.ForkLock.RLock() // the kernel does not execute what a child of this process could write to
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil && fresh {
		_, err = io.CopyN(out, cryptorand.Reader, 16)
	}
	return errors.Join(err, out.Close())
}

// write replaces the configuration file.
func (s *site) write(text string) error {
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.config+".new", s.config)
}

// apply changes the chain and waits until that is in effect.
func (s *site) apply(ctx context.Context, change func(*chain)) error {
	next := s.chain.clone()
	change(&next)
	if err := s.write(next.String()); err != nil {
		return err
	}
	if _, err := s.Command(ctx, "reload"); err != nil {
		return err
	}
	s.chain = next
	return nil
}

// pids are the processes that serve, by stage.
func (s *site) pids(ctx context.Context) (map[string]int, error) {
	status, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, st := range status.Stages {
		pids[st.Stage] = st.PID
	}
	return pids, nil
}

// settled is nil if every stage of the chain serves, in the order of the chain, and each
// standby stands by.
func (s *site) settled(ctx context.Context) error {
	status, err := s.Status(ctx)
	if err != nil {
		return err
	}
	var order []string
	for _, st := range status.Stages {
		order = append(order, st.Stage)
		if st.State != "serving" {
			return fmt.Errorf("stage %s is %s", st.Stage, st.State)
		}
		if want := slices.Contains(s.chain.standby, st.Stage); want && (st.Standby == nil || st.Standby.State != "standby") {
			return fmt.Errorf("stage %s has no standby yet", st.Stage)
		}
	}
	if !slices.Equal(order, s.chain.order) {
		return fmt.Errorf("the chain is %q, want %q", order, s.chain.order)
	}
	return nil
}

// alone is nil if no stage has a process that it does not need.
func (s *site) alone(ctx context.Context) error {
	status, err := s.Status(ctx)
	if err != nil {
		return err
	}
	for _, st := range status.Stages {
		if len(st.Others) > 0 {
			return fmt.Errorf("stage %s has other processes: %v", st.Stage, st.Others)
		}
	}
	return nil
}
