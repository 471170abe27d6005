package cli

import (
	"strings"
	"testing"
)

func TestBadFlagsOfSwap(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"swap", "swap needs the name of a stage"},
		{"swap core --rollback-on errors=5", `--rollback-on: errors: want N% with a number above 0 and up to 100, have "5"`},
		{"swap core --rollback-on crash", `--rollback-on: want errors=N% or health, have "crash"`},
		{"swap core --probation -1s", "--probation -1s: must not be negative"},
		{"swap core --probation soon", "want a duration"},
		{"reload now", "reload takes no arguments"},
		{"status -o xml", `--output "xml": this command prints text, json`},
	} {
		_, _, err := run(t, append(strings.Fields(c.args), "--data-dir", t.TempDir())...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
}

func TestCommandsOfNoHost(t *testing.T) {
	for _, args := range []string{"swap core", "reload", "status"} {
		dir := t.TempDir()
		_, _, err := run(t, append(strings.Fields(args), "--data-dir", dir)...)
		if err == nil || !strings.Contains(err.Error(), "no host runs on the data directory "+dir) {
			t.Errorf("%s: got %v", args, err)
		}
	}
}
