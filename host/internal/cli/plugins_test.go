package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/process/processtest"
)

// scripts makes a directory with three plugins: this binary as a stage with and without
// one-time certificates, and something that is none.
func scripts(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, line := range map[string]string{
		"front": fmt.Sprintf("%s=front exec '%s'", envStage, self),
		"plain": fmt.Sprintf("unset PLUGIN_CLIENT_CERT; %s=plain exec '%s'", envStage, self),
		"wrong": "echo 'the licence has expired' >&2; exit 3",
	} {
		err = errors.Join(err, processtest.WriteProgram(filepath.Join(dir, "catena-stage-"+name), []byte("#!/bin/sh\n"+line+"\n")))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Each plugin is asked what it is, and how its control socket is protected.
func TestPlugins(t *testing.T) {
	t.Parallel()
	dir := scripts(t)
	config := filepath.Join(t.TempDir(), "catena.yaml")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + dir + "]\nstages:\n  front: {delegate: plain, lock: off, isolation: off}\n  plain: {delegate: wrong, lock: off, isolation: off}\n  wrong: {lock: off, isolation: off}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Kubernetes' loggers belong to the process.
	out, _, err := command(t, "plugins", "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Fields(line))
	}
	if len(rows) < 3 || !slices.Equal(rows[0], []string{"NAME", "VERSION", "KUBERNETES", "PROTOCOL", "CONTROL", "SHA256", "PATH"}) {
		t.Fatalf("printed\n%s", out)
	}
	for i, want := range [][2]string{{"front", "mtls"}, {"plain", "directory"}} {
		if row := rows[i+1]; len(row) != 7 || row[0] != want[0] || row[4] != want[1] || row[6] != filepath.Join(dir, "catena-stage-"+want[0]) {
			t.Errorf("row %q, want %q", row, want)
		}
	}
	if !strings.Contains(out, "refused: ") || !strings.Contains(out, "the licence has expired") {
		t.Errorf("no word of the one that is no plugin in\n%s", out)
	}

	out, _, err = command(t, "plugins", "--config", config, "-o", "json")
	var all []plugin
	if err = errors.Join(err, json.Unmarshal([]byte(out), &all)); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for i, want := range []plugin{{Name: "front", Control: "mtls"}, {Name: "plain", Control: "directory"}, {Name: "wrong"}} {
		if p := all[i]; p.Name != want.Name || p.Control != want.Control || (p.SDK == "") != (want.Control == "") || (p.Refused == "") != (want.Control != "") || len(p.SHA256) != 64 {
			t.Errorf("got %+v, want %+v", p, want)
		}
	}
}
