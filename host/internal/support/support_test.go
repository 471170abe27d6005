package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func text(s string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// A part that fails or hangs costs no other one, and what it has written is kept.
func TestCollect(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	results := Collect(t.Context(), []Part{
		{Name: "fine", Write: text("all of it")},
		{Name: "fails", Write: func(_ context.Context, w io.Writer) error {
			_, _ = io.WriteString(w, "some")
			return errors.New("broken\ntwice, password=hunter2")
		}},
		{Name: "hangs", Timeout: 10 * time.Millisecond, Write: func(_ context.Context, w io.Writer) error {
			_, _ = io.WriteString(w, "begun")
			<-release
			_, err := io.WriteString(w, "too late")
			return err
		}},
		{Name: "large", Write: func(_ context.Context, w io.Writer) error {
			_, err := w.Write(make([]byte, maxPart+1))
			return err
		}, Binary: true},
	}, NewSecrets())
	for i, want := range []struct{ content, problem string }{
		{"all of it", ""}, {"some", "incomplete: broken; twice, password=***"}, {"begun", "incomplete: did not come within 10ms"}, {strings.Repeat("\x00", maxPart), "incomplete: is cut off at 32 MiB"},
	} {
		r, problem := results[i], ""
		if r.Err != nil {
			problem = r.Problem()
		}
		if string(r.Content) != want.content || problem != want.problem {
			t.Errorf("%s: %d bytes, problem %q, want %d bytes, %q", r.Name, len(r.Content), problem, len(want.content), want.problem)
		}
	}
}

func TestSecretsAreRemoved(t *testing.T) {
	t.Parallel()
	s := NewSecrets("Tr0ub4dor&3", "Tr0ub4", "x")
	const jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ing.eyJzdWIiOiJhIn0.c2ln"
	for in, want := range map[string]string{
		"a Tr0ub4dor&3 b Tr0ub4 x": "a *** b *** x",
		"key: -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nmore": "key: ***\nmore",
		"-----BEGIN EC PRIVATE KEY-----\ncut off":                                        "***",
		"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----":                    "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
		"token is " + jwt + ".":                                             "token is ***.",
		"Authorization: Bearer abcdefghijklmnop":                            "Authorization: Bearer ***",
		"https://root:calvin@etcd:2379/x":                                   "https://root:***@etcd:2379/x",
		"--password=abc --token-auth-file=/etc/tokens":                      "--password=*** --token-auth-file=/etc/tokens",
		"stages.a.env.K=v w\nstages.a={\"env\": {}}\nstages.a.standby=true": "stages.a.env.K=***\nstages.a=***\nstages.a.standby=true",
		`{"client_secret": "abc", "a": 1}`:                                  `{"client_secret": "***", "a": 1}`,
	} {
		if got := string(s.Remove([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestArchive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	results := []Result{
		{Part: Part{Name: "a/b.txt", About: "the letter"}, Content: []byte("B")},
		{Part: Part{Name: "c.txt"}, Err: errors.New("is not here")},
	}
	size, err := Create(path, "dir", time.Now(), results)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || info.Size() != size || info.Mode().Perm() != 0o600 {
		t.Fatalf("%d bytes, %v; %v, %v", size, err, info, statErr)
	}
	got := untar(t, path)
	if got["dir/a/b.txt"] != "B" || len(got) != 2 {
		t.Errorf("the archive has %q", got)
	}
	index := got["dir/README.txt"]
	if !strings.Contains(index, "the letter") || !strings.Contains(index, "is not here") {
		t.Errorf("the index is\n%s", index)
	}
	if _, err := Create(path, "dir", time.Now(), nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the file that existed is gone")
	}
}

func untar(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
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
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

// What the kernel shows of a process has nothing of its environment.
func TestProcess(t *testing.T) {
	t.Setenv("SUPPORT_TEST", "environment-of-this-process")
	var b strings.Builder
	err := Process(os.Getpid())(t.Context(), &b)
	if err != nil || !strings.Contains(b.String(), "== open descriptors: ") || !strings.Contains(b.String(), "VmRSS") {
		t.Errorf("%v in\n%s", err, b.String())
	}
	if strings.Contains(b.String(), "environment-of-this-process") {
		t.Error("the environment is shown")
	}
	if err := Process(syscall.Getppid()+1<<22)(t.Context(), io.Discard); err == nil {
		t.Error("a process that is not there is shown")
	}
}
