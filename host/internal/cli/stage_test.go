package cli

import (
	"bytes"
	"errors"
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
		{[]string{"check", "x", "--config", "/no/such/config.yaml"}, "--config: /no/such/config.yaml: no such file"},
		{[]string{"check", "x", "--config", broken}, "broken.yaml:1: "},
		{[]string{"check", "x", "--env", "REGION"}, "--env REGION: want NAME=VALUE"},
		{[]string{"check", "/bin/true", "--skip", "nothing"}, `there is no check "nothing"`},
	} {
		var out bytes.Buffer
		root := rootCommand("unknown")
		root.SetOut(&out)
		root.SetArgs(append([]string{"stage"}, tc.args...))
		err := root.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %s", tc.args, err, tc.want)
		}
		if coded := (*codedError)(nil); tc.args[0] == "check" && (!errors.As(err, &coded) || coded.code != 2) {
			t.Errorf("%q: %v has not the exit code 2", tc.args, err)
		}
	}
}

func TestStageConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("greeting: yes\nmany: [1, 2]\nlarge: 9007199254740993\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := stageConfig(file); err != nil || string(got) != `{"greeting":"yes","large":9007199254740993,"many":[1,2]}` { // YAML 1.2, as in the host's files
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
