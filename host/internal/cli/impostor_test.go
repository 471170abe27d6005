package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// envImpostor makes the test binary serve an admin socket in that directory, until its standard input ends; the configuration of
// that host has a stage with the binary envImpostorBinary.
const (
	envImpostor       = "HOST_TEST_IMPOSTOR"
	envImpostorBinary = "HOST_TEST_IMPOSTOR_BINARY"
)

// impostor is what another user has listen where a host would.
type impostor struct{ fakeHost }

func (*impostor) Logs(_ context.Context, _ admin.LogRequest, send func(admin.LogChunk) error) error {
	return send(admin.LogChunk{Text: "forged\n"})
}

func (*impostor) Metrics(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "forged") }

func (*impostor) LogLevels() []admin.LogLevel { return []admin.LogLevel{{Name: "forged"}} }

func (*impostor) DebugPage(w http.ResponseWriter, _ *http.Request, _, _ string) {
	_, _ = io.WriteString(w, "forged")
}

func serveImpostor(dir string) int {
	h := &impostor{fakeHost{
		status: []supervisor.Status{{Stage: "forged", State: "serving"}},
		source: admin.Source{Dir: "/", Set: []string{
			`stages.forged={"binary":"` + os.Getenv(envImpostorBinary) + `","lock":"off","isolation":"off","config":{"a":1}}`,
		}},
	}}
	if _, err := admin.Serve(dir, h, guard.Own, log.New(io.Discard, "", 0)); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Print("serves")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startImpostor has another user's process listen in dir, and returns the program that it names and the file which that makes.
func startImpostor(t *testing.T, dir string) (program, proof string) {
	t.Helper()
	const other = 65534
	program, proof = filepath.Join(t.TempDir(), "program"), filepath.Join(t.TempDir(), "proof")
	err := errors.Join(os.WriteFile(program, []byte("#!/bin/sh\ntouch '"+proof+"'\n"), 0o700), os.MkdirAll(dir, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, other, other); err != nil {
		t.Skipf("only root can give a directory away: %v", err)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles, cmd.Dir, cmd.Stderr = []*os.File{self}, "/", os.Stderr
	cmd.Env = append(os.Environ(), envImpostor+"="+dir, envImpostorBinary+"="+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
	stdin, stdinErr := cmd.StdinPipe()
	stdout, stdoutErr := cmd.StdoutPipe()
	if err := errors.Join(stdinErr, stdoutErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	said := make([]byte, len("serves"))
	if _, err := io.ReadFull(stdout, said); err != nil || string(said) != "serves" {
		t.Fatalf("%q %v", said, err)
	}
	return program, proof
}

// printed runs a command in a process of its own, and returns all that it prints.
func printed(t *testing.T, args string, more ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(strings.Fields(args), more...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), envCommand+"=1"), t.TempDir()
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// Commands use nothing of what another user has listen where a host of this user would.
func TestHostOfAnotherUser(t *testing.T) {
	shared, err := os.MkdirTemp("", "shared")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shared) })
	if err := os.Chmod(shared, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data")
	t.Setenv("XDG_RUNTIME_DIR", shared)
	dirs, err := datadir.Runtime("", data)
	if err != nil {
		t.Fatal(err)
	}
	dir := dirs[1]
	_, proof := startImpostor(t, dir)
	for _, args := range []string{
		"config show", "config validate", "support a.tar.gz", "status", "chain", "explain GET /", "logs", "logs level", "plugins", "lock",
		"reload", "swap forged", "snapshot save a.tar", "token list", "shadow report", "upgrade plan forged --binary /bin/true", "dev .",
	} {
		out := printed(t, args, "--data-dir", data)
		if strings.Contains(strings.ReplaceAll(out, `"forged"`, ""), "forged") {
			t.Errorf("%s uses what the other user says:\n%s", args, out)
		}
		if !strings.HasPrefix(args, "support") && !strings.Contains(out, "directory "+dir+" belongs to user 65534") {
			t.Errorf("%s does not say whose the directory is:\n%s", args, out)
		}
	}
	if _, err := os.Stat(proof); err == nil {
		t.Error("a program that the other user has named was executed")
	}
}

// The owner of a data directory may run a host there, which other users may ask, but it does not decide what these execute.
func TestHostOfTheOwnerOfTheData(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.Chown(data, 65534, 65534); err != nil {
		t.Skip(err)
	}
	// The directory of the socket is elsewhere, since the data directory is below one that the other user cannot enter.
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	_, proof := startImpostor(t, dir)
	where := []string{"--data-dir", data, "--set", "runtimeDir=" + dir}
	if out := printed(t, "status", where...); !strings.Contains(out, "forged") {
		t.Errorf("status is not shown:\n%s", out)
	}
	for _, args := range []string{"config show", "config validate --with-stages", "config schema forged", "plugins", "lock"} {
		if out := printed(t, args, where...); !strings.Contains(out, "the host runs as user 65534") {
			t.Errorf("%s does not say whose the host is:\n%s", args, out)
		}
	}
	printed(t, "support a.tar.gz", where...)
	if _, err := os.Stat(proof); err == nil {
		t.Error("a program that the other user has named was executed")
	}
}
