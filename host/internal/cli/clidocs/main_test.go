package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/cli"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := write(cli.Command("v1"), "v1", dir, time.Unix(1700000000, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"share/man/man1/catena.1":                     "catena-serve(1)",
		"share/man/man1/catena-serve.1":               `.TH "CATENA-SERVE" "1" "Nov 2023" "Catena v1" "Catena"`,
		"share/man/man1/catena-config-init.1":         "etc/catena/catena.yaml",
		"share/bash-completion/completions/catena":    "__start_catena",
		"share/zsh/site-functions/_catena":            "#compdef catena",
		"share/fish/vendor_completions.d/catena.fish": "complete -c catena",
	} {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v", path, want, err)
		}
		for _, here := range []string{os.TempDir() + "/", os.Getenv("HOME") + "/"} {
			if len(here) > 1 && strings.Contains(string(text), here) {
				t.Errorf("%s has a path of this machine, %s", path, here)
			}
		}
	}
}
