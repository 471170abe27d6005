package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A layer that takes back the authorization of an earlier one is told, and so is where both are.
func TestLoosened(t *testing.T) {
	t.Parallel()
	const strict, kubernetes = "apiserver: {authorization-mode: [Node, RBAC]}\n", "apiserverDefaults: kube-apiserver\n"
	for name, tc := range map[string]struct {
		first, second string
		set           []string
		want          string // MODE SOURCE BEFORE
	}{
		"nothing":                        {"", "", nil, ""},
		"open from the first":            {"apiserver: {authorization-mode: [AlwaysAllow]}\n", "", nil, ""},
		"strict by both":                 {strict, "apiserver: {authorization-mode: [RBAC]}\n", nil, ""},
		"open by the second":             {strict, "apiserver:\n  authorization-mode: [RBAC, AlwaysAllow]\n", nil, "RBAC,AlwaysAllow conf.d/b.yaml:2 a.yaml:4"},
		"open by a flag":                 {strict, "", []string{"apiserver.authorization-mode=AlwaysAllow"}, "AlwaysAllow --set apiserver.authorization-mode a.yaml:4"},
		"strict again":                   {strict, "apiserver: {authorization-mode: [AlwaysAllow]}\n", []string{"apiserver.authorization-mode=RBAC"}, ""},
		"null with our defaults":         {strict, "apiserver: null\n", nil, ""},
		"null with Kubernetes' defaults": {kubernetes + strict, "apiserver: null\n", nil, "AlwaysAllow conf.d/b.yaml:1 a.yaml:5"},
		"null for the key":               {kubernetes + strict, "apiserver: {authorization-mode: null}\n", nil, "AlwaysAllow conf.d/b.yaml:1 a.yaml:5"},
		"a file for all modes":           {kubernetes + "apiserver: {authorization-config: /a.yaml}\n", "apiserver: {authorization-config: null}\n", nil, "AlwaysAllow conf.d/b.yaml:1 a.yaml:5"},
		"another flag":                   {strict, "apiserver: {secure-port: 7443}\n", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nstages: {core: {}}\n" + tc.first
			for path, text := range map[string]string{"a.yaml": first, "conf.d/b.yaml": tc.second} {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Load(Options{Files: []string{filepath.Join(dir, "a.yaml")}, Set: tc.set})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if l := c.Loosened(); l != nil {
				got = strings.ReplaceAll(l.Mode+" "+l.Source+" "+l.Before, dir+"/", "")
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
