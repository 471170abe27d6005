package declared

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/lockfile"
	"github.com/catena-dev/catena/host/internal/process"
)

// The error says what the lock has, and the command that would lock the file.
func TestCheckLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "catena.yaml"), filepath.Join(dir, "catena-stage-x")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + dir + "]\nstages: {x: {}}\n"
	for path, text := range map[string]string{file: text, binary: "x"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(config.Options{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	good, bad := strings.Repeat("a", 64), strings.Repeat("b", 64)
	check := func(cfg *config.Config, stage, binary, digest string, want ...string) {
		t.Helper()
		err := CheckLock(cfg, stage, binary, process.Contents{SHA256: digest})
		for _, w := range append(want, stage, binary, digest) {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("got %v, want %q", err, w)
			}
		}
	}
	check(cfg, "x", binary, good, "there is no "+cfg.LockFile(), "run catena lock x --config "+file)
	entries := []lockfile.Entry{{Stage: "x", Platform: Platform, SHA256: good}, {Stage: "x", Platform: "plan9/arm", SHA256: bad}}
	if err := lockfile.New(entries...).Write(cfg.LockFile()); err != nil {
		t.Fatal(err)
	}
	if err := CheckLock(cfg, "x", binary, process.Contents{SHA256: good}); err != nil {
		t.Error(err)
	}
	check(cfg, "x", binary, bad, cfg.LockFile()+" has "+good, "run catena lock x --config "+file)
	check(cfg, "x", "/elsewhere", bad, "run catena lock x --binary /elsewhere --config "+file)
	check(cfg, "y", "/elsewhere", good, "has none for it on "+Platform)
	if err := os.Chmod(cfg.LockFile(), 0o646); err != nil {
		t.Fatal(err)
	}
	if err := CheckLock(cfg, "x", binary, process.Contents{SHA256: good}); err == nil || !strings.Contains(err.Error(), "run chmod o-w "+cfg.LockFile()) {
		t.Errorf("a lock that all can change: %v", err)
	}
	none, err := config.Load(config.Options{Set: []string{"stages.x={}"}})
	if err != nil {
		t.Fatal(err)
	}
	check(none, "x", binary, good, "which is not given")
}

// Stages that come with Catena need no lock.
func TestApproval(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Options{Set: []string{"stages.core={}", `stages.x={"delegate":"core"}`}})
	if err != nil {
		t.Fatal(err)
	}
	if Approval(cfg, "core", "/core") != nil || Approval(cfg, "aggregator", "/a") != nil || Approval(cfg, "x", "/x") == nil || Approval(cfg, "unknown", "/u") == nil {
		t.Error("the wrong stages need a lock")
	}
}

// What has the name of a stage that comes with Catena needs a lock in a plugin directory, unless it is the program of
// the host itself, or the operator has said otherwise.
func TestNamesAreNoApproval(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	foreign, linked := filepath.Join(dir, "catena-stage-controllers"), filepath.Join(dir, "catena-stage-core")
	if err := errors.Join(os.WriteFile(foreign, []byte("#!/bin/sh\n"), 0o700), os.Symlink(own, linked)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		stage, binary string
		set           string
		needs         bool
	}{
		{"controllers", foreign, "", true},
		{"aggregator", foreign, "", true},
		{"core", linked, "", false},
		{"controllers", foreign, "stages.controllers.lock=off", false},
		{"controllers", foreign, "stages.controllers.binary=" + foreign, false},
		{"core", linked, "stages.core.lock=required", true},
		{"controllers", filepath.Join(dir, "elsewhere", "catena-stage-controllers"), "", false}, // as by swap --binary
	} {
		set := []string{
			"pluginDirs=" + dir, `stages.controllers={"delegate":"core"}`, `stages.core={"delegate":"aggregator"}`, "stages.aggregator={}",
		}
		if test.set != "" {
			set = append(set, test.set)
		}
		cfg, err := config.Load(config.Options{Set: set})
		if err != nil {
			t.Fatal(err)
		}
		if got := NeedsLock(cfg, test.stage, test.binary); got != test.needs {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
