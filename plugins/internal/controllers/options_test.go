package controllers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func TestValidate(t *testing.T) {
	for config, want := range map[string]string{
		`{}`:                                 "",
		`{"controllers": ["*", "-cronjob"]}`: "", // by an old name
		`{"controllers": ["namespace-controller"]}`: "",
		`{"controllers": []}`:                       "controllers: is empty",
		`{"controllers": ["*", "namespaces"]}`:      `controllers[1]: "namespaces" is no controller (known: `,
		`{"flags": {"concurrent-gc-syncs": 3, "cluster-signing-duration": "24h", "node-monitor-period": "7s", "terminated-pod-gc-threshold": 12500}}`: "",
		`{"flags": {"concurrent-gc-syncs": "many"}}`:   `flags.concurrent-gc-syncs: invalid value "many"`,
		`{"flags": {"concurrent-gc-syncs": {"a": 1}}}`: "flags.concurrent-gc-syncs: want a string, a number, a bool or a list of them",
		`{"flags": {"concurrent-gc": 3}}`:              "flags.concurrent-gc: is no flag of kube-controller-manager",
		`{"flags": {"secure-port": 1}}`:                "flags.secure-port: is not for this stage",
		`{"flags": {"controllers": ["*"]}}`:            "flags.controllers: is not for this stage",
		`{"flags": {"kubeconfig": "x"}}`:               "flags.kubeconfig: is not for this stage",
		`{"flags": {"concurrent-deployment-syncs": -1, "cluster-signing-key-file": "x", "cluster-signing-kubelet-client-key-file": "y"}}`: "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags",
	} {
		var got []string
		for _, p := range validate([]byte(config), []string{"feature-gates=", "v=0"}) {
			got = append(got, strings.TrimPrefix(p.Key+": "+p.Message, ": "))
		}
		if text := strings.Join(got, "\n"); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", config, text, want)
		}
	}
}

// Every flag of kube-controller-manager either can be set, or is the host's or a part of the server's flags: the release that brings one
// of another kind has to be looked at.
func TestFlags(t *testing.T) {
	p, problems := parse(Stage().Config.(Config), nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	known, allowed := p.flags()
	n := 0
	known.VisitAll(func(f *pflag.Flag) {
		for _, word := range []string{"kubeconfig", "tls-", "bind-address", "port", "authentication", "authorization", "requestheader", "client-ca", "log-", "profiling", "feature-gates", "emulat"} {
			if strings.Contains(f.Name, word) && allowed.Lookup(f.Name) != nil && f.Name != "kube-api-content-type" {
				t.Errorf("%s can be set", f.Name)
			}
		}
		if allowed.Lookup(f.Name) != nil {
			n++
		}
	})
	if n < 60 {
		t.Errorf("%d flags can be set", n)
	}
	for _, name := range []string{"concurrent-namespace-syncs", "kube-api-qps", "leader-elect-lease-duration", "root-ca-file", "cluster-cidr", "large-cluster-size-threshold"} {
		if allowed.Lookup(name) == nil {
			t.Errorf("%s cannot be set", name)
		}
	}
}

// What the flags of the API server say need not be said again, and can be said otherwise.
func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server := []string{"client-ca-file=" + ca, "service-account-signing-key-file=/sa.key"}
	for _, c := range []struct {
		flags  map[string]any
		server []string
		want   string
	}{
		{nil, server, fmt.Sprint(ca, " /sa.key ", ca, " ", filepath.Join(dir, "ca.key"))},
		{nil, []string{"client-ca-file=/etc/other.pem"}, "/etc/other.pem   "},
		{map[string]any{"root-ca-file": "/root.crt"}, server, fmt.Sprint("/root.crt /sa.key ", ca, " ", filepath.Join(dir, "ca.key"))},
		{map[string]any{"cluster-signing-kubelet-client-cert-file": "/k.crt", "cluster-signing-kubelet-client-key-file": "/k.key"}, server, ca + " /sa.key  "},
	} {
		p, problems := parse(Config{Controllers: []string{"*"}, Flags: c.flags}, c.server)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		sa, csr := p.options.SAController, p.options.CSRSigningController
		if got := strings.Join([]string{sa.RootCAFile, sa.ServiceAccountKeyFile, csr.ClusterSigningCertFile, csr.ClusterSigningKeyFile}, " "); got != c.want {
			t.Errorf("%v: %q, want %q", c.flags, got, c.want)
		}
	}
}

// The names of the default are Kubernetes' own, and none is off by default there.
func TestWithoutNodes(t *testing.T) {
	for _, name := range withoutNodes() {
		if !slices.Contains(app.KnownControllers(), name) || slices.Contains(app.ControllersDisabledByDefault(), name) {
			t.Error(name)
		}
	}
}
