package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd takes the units as they are, without a warning. The program that they start need not be installed for that.
func TestUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	files, err := filepath.Glob(filepath.Join(root, "configs", "systemd", "catena.*"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/usr/bin/catena", program)), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if out, err := exec.Command(analyze, args...).CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Isolation of stages fails, or is by less than all means, under these.
func TestUnitLeavesRoomForIsolation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "configs", "systemd", "catena.service"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nDelegate=yes\n") {
		t.Error("no Delegate=yes: stages have no cgroups")
	}
	for _, setting := range []string{"RestrictNamespaces", "ProtectControlGroups", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "MemoryDenyWriteExecute"} {
		if strings.Contains(string(text), "\n"+setting+"=") {
			t.Errorf("%s=", setting)
		}
	}
}
