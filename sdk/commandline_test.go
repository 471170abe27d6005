package sdk_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What a stage prints when a user starts it.
func TestByHand(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		want []string
	}{
		{nil, 1, []string{"is a stage of Catena", "pluginDirs", "--debug", "--describe", "--version", "--help", "catena serve --attach test"}},
		{[]string{"--help"}, 0, []string{"catena-stage-test is a stage of Catena"}},
		{[]string{"-h"}, 0, []string{"is a stage of Catena"}},
		{[]string{"--version"}, 0, []string{"test v1.2.3"}},
		{[]string{"--describe"}, 0, []string{`"name": "test"`, `"protocol": 1`}},
		{[]string{"--nonsense"}, 1, []string{"nonsense", "--help"}},
		{[]string{"serve"}, 1, []string{`unknown argument "serve"`}},
		{[]string{"--debug=" + open}, 1, []string{"must keep other users out", "chmod 700"}},
		{[]string{"--debug=/" + strings.Repeat("x", 120)}, 1, []string{"--debug"}},
	} {
		cmd := command()
		cmd.Args = append(cmd.Args, tc.args...)
		cmd.Env = append(os.Environ(), cmd.Env...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tc.code {
			t.Errorf("%q: %v: %s", tc.args, err, out)
		}
		for _, want := range tc.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%q: no %q in: %s", tc.args, want, out)
			}
		}
		if len(tc.args) > 0 && tc.args[0] == "--describe" && !json.Valid(out) {
			t.Errorf("no JSON: %s", out)
		}
	}
}

// A second process cannot use the directory of the first, and a signal ends the wait.
func TestDebugTakesFolder(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "dbg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "test")
	first := command()
	first.Args = append(first.Args, "--debug="+dir)
	first.Env = append(os.Environ(), first.Env...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Process.Kill() })
	eventually(t, "the first waits", func() bool {
		_, err := os.Stat(filepath.Join(dir, "control.sock"))
		return err == nil
	})
	second := command()
	second.Args = append(second.Args, "--debug="+dir)
	second.Env = append(os.Environ(), second.Env...)
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "another process of the stage") {
		t.Errorf("the second: %v: %s", err, out)
	}
	if err := first.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
}
