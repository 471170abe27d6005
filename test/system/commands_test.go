package system

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// "catena plugins" has a row for each plugin, and says of every other file why it is none.
func TestPluginsCommand(t *testing.T) {
	t.Parallel()
	dir := plugins(t, "one", "two", "open")
	if err := errorsOf(rewrite(filepath.Join(dir, "catena-stage-open"), []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := runCatena(t, "plugins", "--config", helloConfig(t), "--set", "pluginDirs="+dir, "--set", "stages.hello.delegate=one",
		"--set", `stages.one={"lock":"off","delegate":"two"}`, "--set", `stages.two={"lock":"off"}`)
	want := []string{
		`NAME +VERSION +KUBERNETES +PROTOCOL +CONTROL +SHA256 +PATH`,
		`one +v1 +- +1 +mtls +[0-9a-f]{12} +` + regexp.QuoteMeta(filepath.Join(dir, "catena-stage-one")),
		`two +v1 +- +1 +mtls +[0-9a-f]{12} +` + regexp.QuoteMeta(filepath.Join(dir, "catena-stage-two")),
		`refused: .*catena-stage-open: is not executable; .*`,
	}
	if r.code != 0 || !regexp.MustCompile("^"+strings.Join(want, "\n")+"\n$").MatchString(r.stdout) {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := runCatena(t, "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "catena") {
			t.Errorf("%s: exit code %d\n%s", shell, r.code, r.stderr)
		}
	}
}
