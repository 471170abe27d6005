package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wrongEverywhere has a mistake of every class, in each place where one can be.
func wrongEverywhere(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "catena.yaml")
	text := `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
pluginDirs: [` + pluginDir(t, "front") + `]
holdTimout: 5s
apiserver:
  secure-prt: 1
  secure-port: 99999
  min-request-timeout: -5
  authorization-mode: [Sometimes]
  token-auth-file: /no/such/tokens
  tls-sni-cert-key: "/no/such/crt,/no/such/key"
  service-cluster-ip-range: 10.0.0.0
stages:
  front: {delegate: cor, lock: off}
  core: {delegate: tail, binary: /no/such/core}
  tail: {delegate: other}
  other: {bianry: x}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// wrongLines are the errors of wrongEverywhere and of what the tests add to it, each
// with its place. FILE stands for the path of the file.
var wrongLines = []string{
	`FILE:4: holdTimout: unknown key (did you mean "holdTimeout"?)`,
	`FILE:6: apiserver.secure-prt: kube-apiserver has no such flag (did you mean "secure-port"?)`,
	`FILE:7: apiserver.secure-port 99999 must be between`,
	`FILE:9: apiserver.authorization-mode "Sometimes" is not a valid mode`,
	`FILE:10: apiserver.token-auth-file: open /no/such/tokens`,
	`FILE:11: apiserver.tls-sni-cert-key: open /no/such/crt`,
	`FILE:12: apiserver.service-cluster-ip-range[0] is not a valid cidr`,
	`FILE:14: stages.front.delegate: delegates to "cor", which is not declared (did you mean "core"?)`,
	`FILE:15: stages.core.binary: plugin binary /no/such/core: `,
	`FILE:16: stage "tail": no binary catena-stage-tail in `,
	`FILE:17: stages.other.bianry: unknown key (did you mean "binary"?)`,
	`env CATENA_APISERVER_MIN_REQUEST_TIMEOUT: apiserver.min-request-timeout can not be negative`,
	`--set apiserver.feature-gates: kube-apiserver has no feature gate "Nonsense"`,
	`--set apiserver.goaway-chance: can not be`,
}

// haveLines checks that each line of the output begins with one of those wanted, and
// each of those with one of the output. Lines of "heads" may be there besides.
func haveLines(t *testing.T, output string, want []string, heads ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	begins := func(prefixes []string, line string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) })
	}
	for _, line := range lines {
		if !begins(want, line) && !begins(heads, line) {
			t.Errorf("unexpected line %s", line)
		}
	}
	for _, w := range want {
		n := 0
		for _, line := range lines {
			if strings.HasPrefix(line, w) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines begin with %s", n, w)
		}
	}
	if t.Failed() {
		t.Logf("the output:\n%s", output)
	}
}

func inFile(file string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.ReplaceAll(l, "FILE", file)
	}
	return out
}

func wrongArgs(t *testing.T) (args, want []string) {
	t.Helper()
	t.Setenv("CATENA_APISERVER_MIN_REQUEST_TIMEOUT", "-7")
	file := wrongEverywhere(t)
	args = []string{"--config", file, "--set", "apiserver.feature-gates=Nonsense=true", "--set", "apiserver.goaway-chance=2"}
	return args, inFile(file, wrongLines)
}

// Errors of every class come at once, each on a line of its own, with the place where
// it was made.
func TestValidateTellsEveryClass(t *testing.T) {
	args, want := wrongArgs(t)
	_, errOut, err := run(t, append([]string{"config", "validate"}, args...)...)
	if code := exitCode(0); !errors.As(err, &code) || code != 1 {
		t.Errorf("got error %v, want exit code 1", err)
	}
	haveLines(t, errOut, want)
}

// A start reports no less.
func TestServeTellsEveryClass(t *testing.T) {
	args, want := wrongArgs(t)
	data := filepath.Join(t.TempDir(), "data")
	_, _, err := run(t, append([]string{"serve", "--data-dir", data, "--bind-address", "nowhere"}, args...)...)
	if err == nil {
		t.Fatal("it has served")
	}
	haveLines(t, err.Error(), append(want, `--bind-address: apiserver.bind-address: invalid value "nowhere"`), "the configuration has 15 errors:")
	if _, err := os.Stat(data); err == nil {
		t.Error("the data directory has been made")
	}
}

// Binaries that are missing do not hide wrong flags.
func TestServeTellsOfFlagsBesideBinaries(t *testing.T) {
	file := write(t, "  new: {delegate: front}\n")
	_, _, err := run(t, "serve", "--config", file, "--data-dir", filepath.Join(t.TempDir(), "data"), "--secure-port=-1")
	if err == nil {
		t.Fatal("it has served")
	}
	haveLines(t, err.Error(), []string{file + `:8: stage "new": no binary`, "--secure-port: apiserver.secure-port -1 must be"}, "the configuration has 2 errors:")
}

// What is right is shown, and what is wrong is told, binaries aside.
func TestShowTellsWhatIsWrong(t *testing.T) {
	args, want := wrongArgs(t)
	out, _, err := run(t, append([]string{"config", "show"}, args...)...)
	if err == nil {
		t.Error("no error")
	}
	want = slices.DeleteFunc(want, func(l string) bool { return strings.Contains(l, "plugin binary") || strings.Contains(l, "no binary") })
	haveLines(t, err.Error(), want, "the configuration has ")
	for _, key := range []string{"apiserver.secure-port ", "stages.core.binary ", "log.level "} {
		if !strings.Contains(out, "\n"+key) {
			t.Errorf("%s is not shown in\n%s", key, out)
		}
	}
}

// Of a file that cannot be read nothing is known, and nothing is guessed.
func TestValidateOfABrokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "catena.yaml")
	if err := os.WriteFile(file, []byte("stages: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, err := run(t, "config", "validate", "--config", file, "--set", "apiserver.tls-cert-file=/a")
	if err == nil {
		t.Error("no error")
	}
	haveLines(t, errOut, []string{file + ":"})
}

// Only where the plugins are to be looked for is misspelt, so none is missing.
func TestMisspeltPluginDirs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "catena.yaml")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDir: [/a]\nstages: {nowhere: {}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, _ := run(t, "config", "validate", "--config", file)
	haveLines(t, errOut, []string{file + `:3: pluginDir: unknown key (did you mean "pluginDirs"?)`})
}

// Flags that are refused leave nothing behind, whatever else is right.
func TestRefusedFlagsCreateNothing(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	_, _, err := run(t, "serve", "--config", write(t, ""), "--data-dir", data, "--secure-port=99999")
	if err == nil || !strings.Contains(err.Error(), "--secure-port: apiserver.secure-port 99999 must be") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("the data directory has been created")
	}
}
