package cli

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/sdk"
)

// The test binary is also a stage: this variable has its name.
const envStage = "HOST_TEST_STAGE"

// envCommand makes the test binary the command: Kubernetes' feature gates, which earlier
// tests have set, are those of the process.
const envCommand = "HOST_TEST_COMMAND"

func TestMain(m *testing.M) {
	isolation.Dispatch()
	if os.Getenv(envCommand) != "" {
		os.Exit(Main("unknown"))
	}
	if dir := os.Getenv(envImpostor); dir != "" {
		os.Exit(serveImpostor(dir))
	}
	pflag.CommandLine = pflag.NewFlagSet("catena", pflag.ContinueOnError) // as Main does
	if transcript := os.Getenv(envLife); transcript != "" {
		sdk.Main(lifeStage(transcript))
		return
	}
	if name := os.Getenv(envNasty); name != "" {
		sdk.Main(nastyStage(name))
		return
	}
	if name := os.Getenv(envStage); name != "" {
		stage := sdk.Stage{Name: name, New: func(env *sdk.Env) (http.Handler, error) { return toldApart(name, env), nil }}
		if name == "core" {
			stage.ConfigSchema = `{"type":"object","properties":{"greeting":{"type":"string"},"count":{"type":"integer"}},"additionalProperties":false}`
			stage.Validate = func(config []byte, _ []string) []sdk.ConfigProblem {
				if strings.Contains(string(config), "rude") {
					return []sdk.ConfigProblem{{Key: "greeting", Message: "is rude"}}
				}
				return nil
			}
		}
		sdk.Main(stage)
		return
	}
	os.Exit(m.Run())
}

// withConfig writes a chain of stages that are this binary, core with a configuration.
func withConfig(t *testing.T, lines string) string {
	t.Helper()
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + pluginDir(t, "front", "core") + "]\nstages:\n" +
		"  front: {delegate: core, lock: off, env: {" + envStage + ": front}}\n" +
		"  core:\n    env: {" + envStage + ": core}\n    config:\n" + lines
	path := filepath.Join(t.TempDir(), "catena.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// command runs catena in a process of its own.
func command(t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), envCommand+"=1")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func TestConfigSchema(t *testing.T) {
	file := withConfig(t, "      greeting: hi\n")
	out, _, err := run(t, "config", "schema", "core", "--config", file)
	if err != nil || !strings.Contains(out, "\"greeting\": {\n      \"type\": \"string\"") {
		t.Errorf("got %s, %v", out, err)
	}
	if _, _, err := run(t, "config", "schema", "front", "--config", file); err == nil || !strings.Contains(err.Error(), `stage "front" describes no schema`) {
		t.Errorf("without one: %v", err)
	}
	if _, _, err := run(t, "config", "schema", "none", "--config", file); err == nil || !strings.Contains(err.Error(), `no binary catena-stage-none`) {
		t.Errorf("no such stage: %v", err)
	}
}

// The errors of a stage's own configuration name file, line and key.
func TestValidateWithStages(t *testing.T) {
	file := withConfig(t, "      greting: hi\n      count: two\n")
	if out, errOut, err := command(t, "config", "validate", "--config", file); err != nil {
		t.Errorf("without stages: %s%s, %v", out, errOut, err)
	}
	_, errOut, err := command(t, "config", "validate", "--config", file, "--with-stages")
	for _, want := range []string{
		file + `:10: stages.core.config.count: want integer, got string (says stage "core")`,
		file + `:9: stages.core.config.greting: unknown key (did you mean "greeting"?) (says stage "core")`,
	} {
		if err == nil || !strings.Contains(errOut, want) {
			t.Errorf("%q is not in\n%s", want, errOut)
		}
	}
	file = withConfig(t, "      greeting: rude\n")
	if _, errOut, err := command(t, "config", "validate", "--config", file, "--with-stages"); err == nil || !strings.Contains(errOut, `:9: stages.core.config.greeting: is rude (says stage "core")`) {
		t.Errorf("the stage's own check: %s %v", errOut, err)
	}
	file = withConfig(t, "      greeting: kind\n")
	if out, errOut, err := command(t, "config", "validate", "--config", file, "--with-stages"); err != nil || !strings.Contains(out, "valid") {
		t.Errorf("a good one: %s %v", errOut, err)
	}
}
