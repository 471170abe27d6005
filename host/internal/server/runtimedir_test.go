package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deepData returns a data directory whose path is too long for sockets below it, and the directory for those of this user.
func deepData(t *testing.T) (runtime, data string) {
	t.Helper()
	runtime, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	data = filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	return runtime, data
}

// A data directory may lie deeper than the path of a Unix socket can be long.
func TestRuntimeDirOfADeepDataFolder(t *testing.T) {
	tmp, deep := deepData(t)
	got, err := prepareRuntimeDir("", deep, []string{"core"})
	if err != nil || filepath.Dir(got) != tmp {
		t.Errorf("got %q, %v; want a directory in %s", got, err, tmp)
	}
	if again, err := prepareRuntimeDir("", deep, []string{"core"}); err != nil || again != got {
		t.Errorf("next start: got %q, %v; want %q", again, err, got)
	}
	if _, err := prepareRuntimeDir(filepath.Join(deep, "run"), deep, []string{"core"}); err == nil || !strings.Contains(err.Error(), "runtimeDir") {
		t.Errorf("a runtimeDir that is too deep: got %v", err)
	}
}

// Somebody else may have a directory of the name that catena takes in one that is open to all. The error is about that, and not about the first choice.
func TestRuntimeDirThatIsTaken(t *testing.T) {
	_, deep := deepData(t)
	taken, err := prepareRuntimeDir("", deep, []string{"core"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(taken), os.WriteFile(taken, nil, 0o600)); err != nil { // as a directory of another user is, without being root
		t.Fatal(err)
	}
	_, err = prepareRuntimeDir("", deep, []string{"core"})
	if err == nil || !strings.HasPrefix(err.Error(), "runtime directory "+taken) || !strings.Contains(err.Error(), "set runtimeDir") {
		t.Errorf("got %v", err)
	}
}
