package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
)

func TestConfigInit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "catena.yaml")
	if out, _, err := run(t, "config", "init", file); err != nil || out != file+" written\n" {
		t.Fatalf("%q, %v", out, err)
	}
	out, errOut, err := run(t, "config", "validate", "--config", file)
	if err != nil || !strings.HasSuffix(out, "is valid\n") {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, "config", "init", file); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("over a file: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "mine" {
		t.Errorf("the file has been changed to %q", text)
	}
	if _, _, err := run(t, "config", "init", "--force", file); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(file); string(text) != string(config.Initial(false)) {
		t.Errorf("--force has written %q", text)
	}
	if out, _, err := run(t, "config", "init", "--installed", "-"); err != nil || out != string(config.Initial(true)) {
		t.Errorf("with --installed: %q, %v", out, err)
	}
	if out, _, err := run(t, "config", "init", "-"); err != nil || out != string(config.Initial(false)) {
		t.Errorf("standard output: %q, %v", out, err)
	}
}

// The flags of kube-apiserver in comments of the initial configuration have their defaults; package config tests the other keys.
func TestConfigInitHasTheDefaultsOfFlags(t *testing.T) {
	t.Parallel()
	values := func(text string) (*config.Config, func(flag string) string) {
		file := filepath.Join(t.TempDir(), "catena.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{Files: []string{file}})
		if err != nil {
			t.Fatal(err)
		}
		flags, err := declared.CheckFlags(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return cfg, flags.Value
	}
	text := string(config.Initial(false))
	_, defaults := values(text)
	cfg, comments := values(regexp.MustCompile(`(?m)^#((?:  )*[a-z-]+:)`).ReplaceAllString(text, "$1"))
	if len(cfg.APIServer) < 3 {
		t.Errorf("flags in comments: %v", cfg.APIServer)
	}
	for flag := range cfg.APIServer {
		if got, want := comments(flag), defaults(flag); got != want {
			t.Errorf("%s is %s in a comment, and %s by default", flag, got, want)
		}
	}
}
