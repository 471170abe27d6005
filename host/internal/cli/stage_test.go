package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/stagecheck"
)

func TestStageCommandsRefuse(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("a: [b"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"new", "Greeter"}, `name "Greeter"`},
		{[]string{"new", "greeter", "--kind", "plugin"}, "want middleware or api"},
		{[]string{"new", "greeter", "--dir", filepath.Dir(broken)}, "is not empty"},
		{[]string{"new", "greeter", "--sdk", "1.0"}, "neither a version"},
		{[]string{"new"}, "needs the name of the stage"},
		{[]string{"check", "/no/such/stage"}, "/no/such/stage: no such file"},
		{[]string{"check", "x", "-o", "yaml"}, "text, json, junit"},
		{[]string{"check", "x", "--config", "/no/such/config"}, "--config: open /no/such/config"},
		{[]string{"check", "x", "--config", broken}, "broken.yaml: "},
	} {
		var out bytes.Buffer
		root := rootCommand("unknown")
		root.SetOut(&out)
		root.SetArgs(append([]string{"stage"}, tc.args...))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %s", tc.args, err, tc.want)
		}
	}
}

func TestStageConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("greeting: hi\nmany: [1, 2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := stageConfig(file); err != nil || string(got) != `{"greeting":"hi","many":[1,2]}` {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := stageConfig(""); err != nil || got != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// A report can be written in each format that the command offers.
func TestStageReport(t *testing.T) {
	t.Parallel()
	report := &stagecheck.Report{Name: "x", Results: []stagecheck.Result{{Check: "drain", Status: stagecheck.Failed}}}
	for output, want := range map[string]string{"text": "x: 0 passed, 1 failed", "json": `"status": "failed"`, "junit": `failures="1"`} {
		var out bytes.Buffer
		if err := writeStageReport(&out, report, output); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", output, err, out.String())
		}
	}
}
