package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/catena-dev/catena/host/internal/config"
)

// What flags and the configuration name is hidden, in lists too, and nothing that is no file.
func TestHiddenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"catena.yaml", "etcd.key", "sa.key", "sa-old.key", "tls.key", "sni.key"} {
		if err := os.WriteFile(path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(path("conf.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{
		Files: []string{path("catena.yaml")},
		APIServer: map[string][]string{
			"service-account-key-file": {path("sa.key"), path("sa-old.key")},
			"tls-sni-cert-key":         {path("missing") + "," + path("sni.key") + ":example.com,*.example.com"},
			"service-cluster-ip-range": {"10.0.0.0/24"},
			"service-account-issuer":   {"https://kubernetes.default.svc"},
			"some-root":                {"/"},
		},
		Stages: map[string]config.Stage{"core": {APIServer: map[string][]string{"tls-private-key-file": {path("tls.key")}}}},
	}
	cfg.Store.KeyFile = path("etcd.key")
	want := []string{path("catena.yaml"), path("conf.d"), path("etcd.key"), path("sa-old.key"), path("sa.key"), path("sni.key"), path("tls.key")}
	if got := hiddenFiles(cfg); !slices.Equal(got, want) {
		t.Errorf("hidden are %q, and should be %q", got, want)
	}
}
