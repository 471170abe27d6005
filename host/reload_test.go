package main

import (
	"fmt"
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
		"log: {format: json}\n":        "[] [log.format]",
		"watchPlugins: true\n":         "[watchPlugins] []",
		"apiserver: {v: 2}\n":          "[] [apiserver.v]",
		"apiserver: {v: ''}\n":         "[] [apiserver.v]",
		"store: {quotaBytes: 5}\n":     "[] [store.quotaBytes]",
		"  extra: {delegate: front}\n": "[stages.extra.delegate",
		"holdTimeout: 1s\n":            "[holdTimeout] []",
		"log: {level: info}\n":         "[] []",
	} {
		live, fixed := compare(was, load(t, write(t, more)))
		live = slices.DeleteFunc(live, func(key string) bool { return key == "pluginDirs" }) // each test file has its own
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

func TestReloadedInWords(t *testing.T) {
	for want, r := range map[string]reloaded{
		"applied, nothing has changed":              {},
		"not applied: because":                      {Error: "because"},
		"applied: added a, b; removed c; swapped d": {Applied: supervisor.Applied{Added: []string{"a", "b"}, Removed: []string{"c"}, Swapped: []string{"d"}}},
		"applied, nothing has changed; only a restart of the host applies the changed files of apiserver.token-auth-file": {Stale: []string{"apiserver.token-auth-file"}},
		"applied: set log.level; reordered": {Settings: []string{"log.level"}, Applied: supervisor.Applied{Reordered: true}},
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
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

func TestBadFlagsOfSwap(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"swap", "accepts 1 arg(s), received 0"},
		{"swap core --rollback-on errors=5", `--rollback-on: want errors=N%`},
		{"swap core --rollback-on crash", `--rollback-on: want errors=N% or health, have "crash"`},
		{"swap core --probation -1s", "--probation -1s: must not be negative"},
		{"swap core --probation soon", "invalid argument"},
		{"reload now", "unknown command"},
		{"status -o xml", `--output "xml": this command prints text, json`},
	} {
		_, _, err := run(t, append(strings.Fields(c.args), "--data-dir", t.TempDir())...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
}

func TestCommandsOfNoHost(t *testing.T) {
	for _, args := range []string{"swap core", "reload", "status"} {
		dir := t.TempDir()
		_, _, err := run(t, append(strings.Fields(args), "--data-dir", dir)...)
		if err == nil || !strings.Contains(err.Error(), "no host answers for the data folder "+dir) {
			t.Errorf("%s: got %v", args, err)
		}
	}
}

// Loggers that were made before the level was changed have the new one.
func TestLogLevelsCanChange(t *testing.T) {
	s := &server{}
	s.log, s.others = newLogger(config.Log{Level: "info", StageLevel: "warn", Format: "text"})
	host, stage := s.log.Named("front").With("a", 1), s.others.Named("core").With("b", 2)
	if host.IsDebug() || stage.IsInfo() {
		t.Error("the levels at the start are others")
	}
	s.setLogLevels(config.Log{Level: "debug", StageLevel: "info"})
	if !host.IsDebug() || !stage.IsInfo() || stage.IsDebug() {
		t.Error("the levels have not changed")
	}
}
