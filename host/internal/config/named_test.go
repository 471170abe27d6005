package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What flags and the configuration name is named, in lists, without a directory and before it exists too, and nothing that is no file.
func TestNamedFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"catena.yaml", "etcd.key", "sa.key", "sa-old.key", "tls.key", "sni.key", "tokens.csv", "true"} {
		if err := os.WriteFile(path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"conf.d", "certs"} {
		if err := os.Mkdir(path(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cfg := &Config{
		Files: []string{"catena.yaml"},
		APIServer: map[string][]string{
			"service-account-key-file": {path("sa.key"), path("sa-old.key")},
			"tls-sni-cert-key":         {path("missing") + "," + path("sni.key") + ":example.com,*.example.com"},
			"token-auth-file":          {"tokens.csv"},
			"cert-dir":                 {"certs"},
			"audit-policy-file":        {path("later.yaml")},
			"allow-privileged":         {"true"},
			"runtime-config":           {"api/all=true"},
			"service-cluster-ip-range": {"10.0.0.0/24"},
			"service-account-issuer":   {"https://kubernetes.default.svc"},
			"some-root":                {"/"},
			"a-flag-of-the-table":      {"not-yet"},
		},
		Stages: map[string]Stage{"core": {APIServer: map[string][]string{"tls-private-key-file": {path("tls.key")}}}},
	}
	cfg.Store.KeyFile = "etcd.key"
	var want []string
	for _, name := range []string{
		"catena.yaml", "certs", "conf.d", "etcd.key", "later.yaml", "missing", "not-yet", "sa-old.key", "sa.key", "sni.key", "tls.key", "tokens.csv",
	} {
		want = append(want, path(name))
	}
	isFile := func(flag string) bool { return flag == "a-flag-of-the-table" }
	if got := cfg.NamedFiles(isFile); !slices.Equal(got, want) {
		t.Errorf("named are %q, and should be %q", got, want)
	}
}
