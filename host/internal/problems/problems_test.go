package problems

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/catena-dev/catena/host/internal/config"
)

// An error names its key once, and where it was set.
func TestLocate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "catena.yaml")
	text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\napiserver: {v: 1}\nstages: {hello: {}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{Files: []string{file}, Set: []string{"apiserver.secure-port=x", "stages.hello.config.a=1"}})
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"apiserver.secure-port: not a number":       "--set apiserver.secure-port: not a number",
		"stages.hello.config.a: unknown":            "--set stages.hello.config.a: unknown",
		"apiserver.secure-port 7 is taken":          "--set apiserver.secure-port: 7 is taken",
		"apiserver.secure-port[0] is not a port":    "--set apiserver.secure-port: [0] is not a port",
		"apiserver.secure-port and apiserver.v: no": "--set apiserver.secure-port: apiserver.secure-port and apiserver.v: no",
		"apiserver.v: too low":                      file + ":3: apiserver.v: too low",
		"apiserver.etcd-servers: must be set":       "apiserver.etcd-servers: must be set",
		"needs apiserver.secure-port: not a thing":  "--set apiserver.secure-port: needs apiserver.secure-port: not a thing",
	} {
		cause := errors.New(message)
		err := Locate(cfg, cause)
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%s: got %q, want %q", message, err, want)
		}
	}
}
