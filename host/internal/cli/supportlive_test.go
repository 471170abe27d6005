package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const (
	secretToken = "t0kenOfSomebody"
	secretEnv   = "v4lueOfAnEnvironment"
)

// collect runs "catena support" in a process of its own, and returns what it prints and the files of the archive.
func (l *life) collect(t *testing.T, args ...string) (string, map[string]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.tar.gz")
	cmd := exec.Command(os.Args[0], append([]string{"support", file, "--data-dir", filepath.Join(l.dir, "data")}, args...)...)
	cmd.Env = append(os.Environ(), envCommand+"=1")
	cmd.Dir = l.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return string(out), files
		}
		content, readErr := io.ReadAll(archive)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(content)
	}
}

// Of a host that runs, hangs, or is no more, there is what can be had, and no secret.
func TestSupport(t *testing.T) {
	t.Parallel()
	l := newLife(t, "life")
	tokens := filepath.Join(l.dir, "tokens")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + l.plugins + "]\nlog: {stageLevel: debug, level: debug}\n" +
		"apiserver: {" + lifeFlags + ", token-auth-file: " + tokens + "}\nstages:\n  life:\n    lock: off\n    isolation: off\n" +
		"    env: {" + envLife + ": 'life:" + l.notes + "', KEY: " + secretEnv + "}\n"
	if err := errors.Join(os.WriteFile(l.config, []byte(text), 0o600), os.WriteFile(tokens, []byte(secretToken+",jane,jane\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l.start(t)
	l.until(t, "host that is ready", func() bool {
		out, err := l.command(t, "status", "-o", "json")
		return err == nil && strings.Contains(out, "HasBeenReady")
	})
	check := func(when string, files map[string]string, want ...string) {
		t.Helper()
		names := slices.Sorted(maps.Keys(files))
		for _, pattern := range append(want, "README.txt", "configuration.txt", "files.txt", "machine.txt", "versions.txt", "binaries.txt") {
			if !slices.ContainsFunc(names, func(name string) bool { ok, _ := path.Match(pattern, name); return ok }) {
				t.Errorf("%s, the archive has no %s: %q\n%s", when, pattern, names, files["README.txt"])
			}
		}
		for name, content := range files {
			for _, secret := range []string{secretToken, secretEnv, "PRIVATE KEY"} {
				if strings.Contains(content, secret) {
					t.Errorf("%s, %s has the secret %s", when, name, secret)
				}
			}
		}
	}

	out, files := l.collect(t)
	check("while the host runs", files, "status.txt", "status.json", "log.txt", "log-levels.txt", "metrics.txt", "etcd.txt", "processes/host-*.txt", "processes/life-*.txt",
		"profiles/host-goroutines.txt", "profiles/host-heap.pb.gz", "profiles/life-*-goroutines.txt", "profiles/life-*-heap.pb.gz")
	if strings.Contains(files["README.txt"], "Missing") {
		t.Errorf("something is missing while the host runs:\n%s", files["README.txt"])
	}
	if !strings.Contains(out, "s.tar.gz: ") || !strings.Contains(out, "status.txt") {
		t.Errorf("printed:\n%s", out)
	}
	if settings := files["configuration.txt"]; !strings.Contains(settings, "stages.life.env.KEY") || !strings.Contains(settings, tokens) {
		t.Errorf("the configuration is\n%s", settings)
	}

	if err := l.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, files = l.collect(t, "--config", l.config)
	check("while the host hangs", files, "processes/host-*.txt", "processes/child-*.txt")
	if !strings.Contains(files["README.txt"], "has not responded within") {
		t.Errorf("while the host hangs:\n%s", files["README.txt"])
	}

	if err := errors.Join(l.cmd.Process.Signal(syscall.SIGCONT), l.cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	<-l.ended
	_, files = l.collect(t, "--config", l.config)
	check("without a host", files)
	if !strings.Contains(files["README.txt"], "no host runs on the data directory") || files["status.txt"] != "" {
		t.Errorf("without a host:\n%s", files["README.txt"])
	}
}

func TestSupportKeepsFilesThatExist(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := run(t, "support", file, "--data-dir", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "exists: name another file") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "x" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
