package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

func TestReloadKnowsWhatCanChange(t *testing.T) {
	was := load(t, write(t, ""))
	for more, want := range map[string]string{
		"":                             "[] []",
		"log: {level: debug}\n":        "[log.level] []",
		"log: {format: json}\n":        "[log.format] []",
		"watchPlugins: true\n":         "[watchPlugins] []",
		"apiserver: {v: 2}\n":          "[] [apiserver.v]",
		"apiserver: {v: ''}\n":         "[] [apiserver.v]",
		"store: {quotaBytes: 5}\n":     "[] [store.quotaBytes]",
		"  extra: {delegate: front}\n": "[stages.extra.delegate",
		"holdTimeout: 1s\n":            "[holdTimeout] []",
		"log: {level: info}\n":         "[] []",
	} {
		live, fixed := compare(was, load(t, write(t, more)))
		if got := fmt.Sprint(live, fixed); !strings.HasPrefix(got, strings.TrimSuffix(want, "]")) {
			t.Errorf("%q: got %s, want %s", more, got, want)
		}
	}
	is := load(t, write(t, ""), `stages.core.config={"a": 1}`, "stages.tail.env.X=1", "stages.front.startTimeout=2s")
	live, fixed := compare(was, is)
	for _, key := range []string{"stages.core.config.a", "stages.tail.env.X", "stages.front.startTimeout"} {
		if !slices.Contains(live, key) {
			t.Errorf("%s is not among %v (%v)", key, live, fixed)
		}
	}
}

// What a swap, an addition or a removal of a stage tells of need not be told key by key.
func TestSettingsOfSwappedStagesAreNotListed(t *testing.T) {
	keys := []string{"log.level", "stages.a.config.x", "stages.b.startTimeout", "stages.c.delegate"}
	got := unattached(keys, supervisor.Applied{Swapped: []string{"a"}})
	if want := []string{"log.level", "stages.b.startTimeout"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// write makes a configuration file of a chain, with more lines at its end.
func write(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catena.yaml")
	text := `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages:
  tail: {}
  front: {delegate: core}
  core: {delegate: tail}
` + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, file string, set ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Options{Files: []string{file}, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
