package clients

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// apiserver is a program with the command line of kube-apiserver. With kube-apiserver itself, a test that fails
// against Catena shows whose mistake that is.
var apiserver = flag.String("apiserver", "", "`path` of the kube-apiserver that is tested, instead of Catena under that name")

// patience is how long a machine with much else to do may take for one step.
const patience = 3 * time.Minute

// built returns the path of a program in the directory that CATENA_BIN names.
func built(t *testing.T, elem ...string) string {
	t.Helper()
	bin := os.Getenv("CATENA_BIN")
	if bin == "" {
		t.Fatal("CATENA_BIN is not set: run make test-clients")
	}
	path := filepath.Join(append([]string{bin}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make test-clients", err)
	}
	return path
}

// kubeAPIServer returns the path of the tested program, whose name is kube-apiserver.
func kubeAPIServer(t *testing.T) string {
	t.Helper()
	if *apiserver != "" {
		return *apiserver
	}
	path := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.Symlink(built(t, "catena"), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// environ is the environment of programs: a home of their own, kubectl in the path, and not the variable of
// the tests, which Catena would treat as configuration.
func environ(t *testing.T, home string) []string {
	t.Helper()
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CATENA_BIN=") })
	return append(env, "HOME="+home, "PATH="+filepath.Dir(built(t, "tools", "kubectl"))+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// program is one that is called several times, each time with the same environment.
type program struct {
	path string
	env  []string
}

// run runs the program, which must succeed, and returns its standard output.
func (p program) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.try(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(p.path), strings.Join(args, " "), err, out)
	}
	return out
}

// try runs the program, and returns what it prints: its standard output alone if it succeeds.
func (p program) try(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.env, &stdout, &stderr, time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String() + stderr.String(), err
	}
	return stdout.String(), nil
}

// eventually calls check until it returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s, after %s: %v", what, patience, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
