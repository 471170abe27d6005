package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	nodes = 50
	pods  = 500
)

// kwokctl creates a cluster of the tested server and stock programs, on which a Deployment gets ready on simulated
// nodes, and deletes it again.
func TestKwok(t *testing.T) {
	t.Parallel()
	c := newKwok(t)
	c.kwokctl.run(t, "create", "cluster", "--name", c.name, "--runtime", "binary", "--kubeconfig", c.kubeconfig, "--disable-qps-limits",
		"--etcd-binary", built(t, "tools", "etcd"), "--kube-apiserver-binary", kubeAPIServer(t),
		"--kube-controller-manager-binary", built(t, "tools", "kube-controller-manager"), "--kube-scheduler-binary", built(t, "tools", "kube-scheduler"),
		"--kwok-controller-binary", built(t, "clients", "kwok"), "--wait", patience.String(),
		"--extra-args", "kube-apiserver=cert-dir="+filepath.Join(c.dir, "certs"))
	c.kwokctl.run(t, "scale", "node", "--name", c.name, "--replicas", fmt.Sprint(nodes))
	c.kubectl.run(t, "create", "deployment", "web", "--image=example.com/web", fmt.Sprintf("--replicas=%d", pods))
	c.kubectl.run(t, "rollout", "status", "deployment/web", "--timeout", patience.String())
	c.isReady(t)
	c.kwokctl.run(t, "delete", "cluster", "--name", c.name, "--kubeconfig", c.kubeconfig)
	eventually(t, "the cluster is deleted", c.isGone)
}

// kwok is a cluster of kwokctl, in a directory of its own.
type kwok struct {
	name, dir, kubeconfig string
	kwokctl, kubectl      program
}

// newKwok prepares a cluster, which is deleted at the end of the test if it still is there.
func newKwok(t *testing.T) kwok {
	t.Helper()
	dir := t.TempDir()
	c := kwok{name: "clients", dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	env := append(environ(t, dir), "KWOK_WORKDIR="+filepath.Join(dir, "kwok"), "KUBECONFIG="+c.kubeconfig, "TMPDIR="+t.TempDir())
	c.kwokctl, c.kubectl = program{built(t, "clients", "kwokctl"), env}, program{built(t, "tools", "kubectl"), env}
	t.Cleanup(func() {
		if t.Failed() {
			log, err := os.ReadFile(filepath.Join(c.dir, "kwok", "clusters", c.name, "logs", "kube-apiserver.log"))
			t.Logf("log of the server: %s %v", log, err)
		}
		_, _ = c.kwokctl.try(context.Background(), "delete", "cluster", "--name", c.name, "--kubeconfig", c.kubeconfig)
	})
	return c
}

// isReady checks that all pods run, spread over all nodes.
func (c kwok) isReady(t *testing.T) {
	t.Helper()
	var list struct {
		Items []struct {
			Spec   struct{ NodeName string }
			Status struct{ Phase string }
		}
	}
	if err := json.Unmarshal([]byte(c.kubectl.run(t, "get", "pods", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	running, used := 0, map[string]bool{}
	for _, pod := range list.Items {
		if pod.Status.Phase == "Running" {
			running++
			used[pod.Spec.NodeName] = true
		}
	}
	if running != pods || len(used) != nodes {
		t.Errorf("%d pods run on %d nodes, want %d on %d", running, len(used), pods, nodes)
	}
}

// isGone returns an error if files of the cluster are left, or processes.
func (c kwok) isGone() error {
	var left []error
	clusters, err := os.ReadDir(filepath.Join(c.dir, "kwok", "clusters"))
	for _, e := range clusters {
		left = append(left, fmt.Errorf("there still is %s", e.Name()))
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), c.dir) {
			left = append(left, fmt.Errorf("%s still runs: %s", filepath.Dir(file), strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return errors.Join(append(left, err)...)
}
