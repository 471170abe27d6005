package fuzz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The stages at random: the head of the chain, one between Kubernetes' stages, and the tail.
var stages = []string{"random-a", "random-b", "random-c"}

// site is a Catena whose chain the test changes.
type site struct {
	*cluster.Catena
	config string
	seed   uint64
	random *rand.Rand // makes the choices of the test
	chain  chain
	// transport has the connections of the test.
	transport http.RoundTripper
}

// newSite starts a Catena without the stages at random.
func newSite(t *testing.T) *site {
	t.Helper()
	// What the test starts inherits it.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: *openFiles, Max: *openFiles}); err != nil {
		t.Fatal(err)
	}
	s := &site{seed: *seed, chain: chain{with: map[string]int{}, standby: map[string]bool{}}}
	if s.seed == 0 {
		s.seed = rand.Uint64N(1 << 32)
	}
	s.random = rand.New(rand.NewPCG(s.seed, 0))
	t.Logf("seed %d for %s", s.seed, *duration)
	dir := t.TempDir()
	plugins := filepath.Join(dir, "plugins")
	s.config = filepath.Join(dir, "catena.yaml")
	policy := filepath.Join(dir, "policy.yaml")
	err := errors.Join(
		os.Mkdir(plugins, 0o755), install(plugins), s.write(s.text(s.chain)),
		os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	s.Catena, err = cluster.StartCatena(t.Context(), cluster.Options{
		ConfigFile: s.config, PluginDirs: []string{plugins},
		Flags: map[string]string{
			"audit-policy-file": policy, "audit-log-path": filepath.Join(dir, "audit.log"), "audit-log-maxsize": "10", "audit-log-maxbackup": "1",
		},
		// Without namespaces, the user of a stage has to pass through the directories above the data directory.
		Prepare: func(c *cluster.Catena) error { return os.Chmod(c.Dir, 0o755) },
	})
	if err == nil {
		s.transport, err = rest.TransportFor(s.Config(cluster.Admin))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// install puts the test binary into a directory, under the name of each stage.
func install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range stages {
		path := filepath.Join(dir, binaryPrefix+name)
		errs = append(errs, cluster.WriteProgram(path, program), os.Chmod(path, 0o755))
	}
	return errors.Join(errs...)
}

// chain is which of the stages at random are in the chain, with a number in their configuration, and which have a standby.
type chain struct {
	with    map[string]int
	standby map[string]bool
}

// text is the configuration of a chain.
func (s *site) text(c chain) string {
	order := slices.DeleteFunc([]string{stages[0], "aggregator", stages[1], "core", "extensions", stages[2]}, func(name string) bool {
		_, ok := c.with[name]
		return slices.Contains(stages, name) && !ok
	})
	var b strings.Builder
	b.WriteString("apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nlog: {stageLevel: info}\nstages:\n")
	for i, name := range order {
		fmt.Fprintf(&b, "  %s:\n    lock: off\n", name)
		if i+1 < len(order) {
			fmt.Fprintf(&b, "    delegate: %s\n", order[i+1])
		}
		if slices.Contains(stages, name) {
			fmt.Fprintf(&b, "    required: false\n    isolation: auto\n    startTimeout: 10s\n    livenessTimeout: 5s\n    drainTimeout: 3s\n    drainSpread: 1s\n    standby: %t\n", c.standby[name])
			fmt.Fprintf(&b, "    limits: {memory: 384Mi}\n    config: {n: %d}\n", c.with[name])
			fmt.Fprintf(&b, "    env: {%s: \"%d\", %s: %q, %s: %q, %s: %q}\n", envSeed, s.seed, envDir, s.dataOf(name), envOnly, *only, envWithout, *without)
		}
	}
	return b.String()
}

// dataOf is the data directory of a stage.
func (s *site) dataOf(stage string) string {
	if s.Catena == nil {
		return ""
	}
	return filepath.Join(s.DataDir(), "stages", stage)
}

// processes counts the processes of the stages at random so far.
func (s *site) processes() int {
	all := 0
	for _, name := range stages {
		text, _ := os.ReadFile(filepath.Join(s.dataOf(name), "processes"))
		n, _ := strconv.Atoi(string(text))
		all += n
	}
	return all
}

// write replaces the configuration file.
func (s *site) write(text string) error {
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.config+".new", s.config)
}

// apply has the host read another chain, and keeps that if the host does.
func (s *site) apply(ctx context.Context, change func(*chain)) error {
	next := chain{maps.Clone(s.chain.with), maps.Clone(s.chain.standby)}
	change(&next)
	if err := s.write(s.text(next)); err != nil {
		return err
	}
	if _, err := s.Command(ctx, "reload"); err != nil {
		return err
	}
	s.chain = next
	return nil
}

// keep saves what tells how a run went: the log of the host, and the journals of the processes.
func (s *site) keep(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "catena-fuzz")
	if err != nil {
		t.Error(err)
		return
	}
	move := func(from, to string) {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
	move(s.Process().Log, "host.log")
	for _, name := range stages {
		journals, _ := filepath.Glob(filepath.Join(s.dataOf(name), "journal-*"))
		for _, path := range journals {
			move(path, name+"-"+filepath.Base(path))
		}
	}
	t.Logf("the log of the host, and what each process of the stages has done, is in %s", dir)
	t.Logf("to repeat it: go test ./test/fuzz -v -fuzz.seed=%d -fuzz.for=%s -fuzz.files=%d -fuzz.only=%q -fuzz.without=%q", s.seed, *duration, *openFiles, *only, *without)
}
