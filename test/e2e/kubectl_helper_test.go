package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// kubectl is a user's kubectl, in a namespace of the test's own.
type kubectl struct {
	t         *testing.T
	home      string // of its caches
	config    string // path of the kubeconfig
	namespace string
	env       []string
}

// kubectl returns an administrator's kubectl and makes its namespace, which goes with
// the test.
func (s *system) kubectl(t *testing.T) *kubectl {
	t.Helper()
	k := s.kubectlAs(t, cluster.Admin)
	ns, err := s.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	k.namespace = ns.Name
	t.Cleanup(func() {
		if err := s.client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "default service account", func(ctx context.Context) error {
		_, err := s.client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return k
}

// kubectlAs returns the kubectl of a user with a token, in the namespace "default".
func (s *system) kubectlAs(t *testing.T, user string) *kubectl {
	t.Helper()
	return newKubectl(t, s.users[user])
}

func newKubectl(t *testing.T, config string) *kubectl {
	t.Helper()
	return &kubectl{t: t, home: t.TempDir(), config: config, namespace: "default"}
}

// with returns a copy that uses another kubeconfig in the same namespace.
func (k *kubectl) with(config string) *kubectl {
	other := newKubectl(k.t, config)
	other.namespace = k.namespace
	return other
}

// in returns a copy for a subtest.
func (k *kubectl) in(t *testing.T) *kubectl {
	other := *k
	other.t = t
	return &other
}

// setenv returns a copy with another variable in its environment.
func (k *kubectl) setenv(env string) *kubectl {
	other := *k
	other.env = append(slices.Clip(k.env), env)
	return &other
}

func (k *kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd, err := cluster.Kubectl(ctx, k.home, k.config, append([]string{"--namespace", k.namespace}, args...)...)
	if err != nil {
		k.t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, k.env...)
	return cmd
}

// try runs kubectl with a standard input.
func (k *kubectl) try(stdin string, args ...string) (stdout, stderr string, code int) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), timeout)
	defer cancel()
	cmd := k.command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	if ctx.Err() != nil {
		k.t.Fatalf("kubectl %q does not end\n%s%s", args, out.String(), errOut.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		k.t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// afterTest runs kubectl when the test's own context has ended.
func (k *kubectl) afterTest(args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var out, errOut strings.Builder
	cmd := k.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run()
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// run is for commands that succeed; it returns the standard output without the final newline.
func (k *kubectl) run(args ...string) string {
	k.t.Helper()
	return k.pipe("", args...)
}

// pipe is run with a standard input.
func (k *kubectl) pipe(stdin string, args ...string) string {
	k.t.Helper()
	stdout, stderr, code := k.try(stdin, args...)
	if code != 0 {
		k.t.Fatalf("kubectl %q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return strings.TrimSuffix(stdout, "\n")
}

// fail is for commands that exit with 1 and have all of the texts in their standard error.
func (k *kubectl) fail(stdin string, args []string, wants ...string) {
	k.t.Helper()
	stdout, stderr, code := k.try(stdin, args...)
	if code != 1 {
		k.t.Errorf("kubectl %q: exit code %d, want 1\n%s%s", args, code, stdout, stderr)
	}
	k.contains(fmt.Sprintf("the error of kubectl %q", args), stderr, wants...)
}

// file writes a file for -f.
func (k *kubectl) file(text string) string {
	k.t.Helper()
	path := filepath.Join(k.t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
	return path
}

// equal compares what a command prints.
func (k *kubectl) equal(want string, args ...string) {
	k.t.Helper()
	if got := k.run(args...); got != want {
		k.t.Errorf("kubectl %q prints %q, want %q", args, got, want)
	}
}

func (k *kubectl) contains(what, text string, wants ...string) {
	k.t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			k.t.Errorf("%s has no %q:\n%s", what, want, text)
		}
	}
}

// eventuallyPrints runs a command until what it prints, both outputs, is what is wanted.
func eventuallyPrints(k *kubectl, wanted func(out string) bool, args ...string) {
	k.t.Helper()
	eventually(k.t, fmt.Sprintf("kubectl %q", args), func(context.Context) error {
		stdout, stderr, code := k.try("", args...)
		if wanted(stdout + stderr) {
			return nil
		}
		return fmt.Errorf("exit code %d: %s%s", code, stdout, stderr)
	})
}
