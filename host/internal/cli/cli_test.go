package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/process/processtest"
	"github.com/catena-dev/catena/sdk/claim"
)

// run executes a command line and returns what it prints.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	root := rootCommand("unknown")
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// write makes a configuration file of a chain, with more lines at its end.
func write(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catena.yaml")
	text := `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
pluginDirs: [` + pluginDir(t, "front", "core", "tail") + `]
stages:
  tail: {lock: off}
  front: {delegate: core, lock: off}
  core: {delegate: tail}
` + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pluginDir makes a directory with binaries that can be started, in principle.
func pluginDir(t *testing.T, stages ...string) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stages {
		if err := os.Link(self, filepath.Join(dir, "catena-stage-"+name)); err != nil {
			b, err := os.ReadFile(self)
			if err == nil {
				err = processtest.WriteProgram(filepath.Join(dir, "catena-stage-"+name), b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestChainIsInTheOrderOfDelegation(t *testing.T) {
	file := write(t, "")
	out, _, err := run(t, "chain", "--config", file, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var links []link
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range links {
		got = append(got, fmt.Sprintf("%s→%s %s", l.Name, l.Delegate, filepath.Base(l.Binary)))
	}
	want := []string{"front→core catena-stage-front", "core→tail catena-stage-core", "tail→ catena-stage-tail"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChainShowsTheClaimsOfTheLastRun(t *testing.T) {
	data := t.TempDir()
	if err := datadir.WriteClaims(data, map[string][]claim.Claim{"front": {claim.Prefix("/")}, "core": {claim.Exact("/a"), claim.Prefix("/b"), claim.Child("/c"), claim.Exact("/d")}}); err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, "chain", "--config", write(t, ""), "--data-dir", data)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  /**\n", "/a /b/** /c/* and 1 more", "not known before the first run", "(not found)"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestChainAsDot(t *testing.T) {
	out, _, err := run(t, "chain", "--config", write(t, ""), "-o", "dot")
	if err != nil || !strings.Contains(out, `"core" -> "tail";`) || !strings.Contains(out, `"tail" -> "not found";`) {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestChainNamesEachMissingBinary(t *testing.T) {
	file := write(t, "  new: {delegate: front}\n")
	_, _, err := run(t, "chain", "--config", file)
	if err == nil || !strings.Contains(err.Error(), `stage "new": no binary catena-stage-new in `) {
		t.Errorf("got %v", err)
	}
}

func TestBuiltinIsForStagesOfTheProgram(t *testing.T) {
	file := write(t, "  new: {delegate: front, binary: builtin}\n")
	_, _, err := run(t, "chain", "--config", file)
	if err == nil || !strings.Contains(err.Error(), `stages.new.binary: stage "new" is not in this program, which has aggregator, `) {
		t.Errorf("got %v", err)
	}
}

func TestEphemeralServerHasItsOwnDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, _, err := run(t, "serve", "--ephemeral", "--data-dir", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "leave out --data-dir") {
		t.Errorf("got %v", err)
	}
	if _, _, err := run(t, "serve", "--ephemeral", "--config", write(t, "  new: {delegate: none}\n")); err == nil {
		t.Error("a configuration that is wrong is served")
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

func TestUnknownOutputFormat(t *testing.T) {
	_, _, err := run(t, "chain", "-o", "xml")
	if err == nil || !strings.Contains(err.Error(), `"xml": this command prints text, json, dot`) {
		t.Errorf("got %v", err)
	}
}

// Errors of all kinds come at once, each with the place where it was made.
func TestValidateTellsEverything(t *testing.T) {
	file := write(t, "  new: {delegate: front, binary: /nowhere}\napiserver: {secure-prt: 1, feature-gates: Nonsense=true}\n")
	_, errOut, err := run(t, "config", "validate", "--config", file)
	if code := exitCode(0); !errors.As(err, &code) || code != 1 {
		t.Errorf("got error %v, want exit code 1", err)
	}
	for _, want := range []string{
		file + ":8: stages.new.binary: plugin binary /nowhere: no such file",
		file + `:9: apiserver.secure-prt: kube-apiserver has no such flag (did you mean "secure-port"?)`,
	} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%q is not in\n%s", want, errOut)
		}
	}
}

func TestShowSaysWhereValuesComeFrom(t *testing.T) {
	file := write(t, "")
	out, _, err := run(t, "config", "show", "--config", file, "--data-dir", "/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"dataDir", "/elsewhere", "--data-dir"}, {"stages.core.delegate", "tail", file + ":7"}, {"log.level", "info", "default"},
	} {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool {
			return strings.HasPrefix(l, want[0]+" ") && strings.Contains(l, want[1]) && strings.HasSuffix(l, want[2])
		}) {
			t.Errorf("no line says %q in\n%s", want, out)
		}
	}
}

func TestKubeconfigNeedsAFirstStart(t *testing.T) {
	_, _, err := run(t, "kubeconfig", "--user", "jane", "--config", write(t, ""), "--data-dir", t.TempDir())
	if err == nil {
		t.Error("a kubeconfig without an authority")
	}
}

// What has a key in it is for its owner alone, whatever the umask, and takes the place of no link.
func TestFilesWithKeysArePrivate(t *testing.T) {
	data, dir := t.TempDir(), t.TempDir()
	if _, err := pki.Ensure(pki.Options{Dir: datadir.PKI(data)}); err != nil {
		t.Fatal(err)
	}
	path, elsewhere := filepath.Join(dir, "jane.kubeconfig"), filepath.Join(dir, "elsewhere")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o666), os.WriteFile(elsewhere, []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
	issue := func(path string) (string, error) {
		out, _, err := run(t, "kubeconfig", "--user", "jane", "--data-dir", data, "--server", "https://a", "--out", path)
		return out, err
	}
	if out, err := issue(path); err != nil || out != "" {
		t.Fatalf("%q, %v", out, err)
	}
	text, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if errors.Join(err, statErr) != nil || !strings.Contains(string(text), "client-key-data") || info.Mode() != 0o600 {
		t.Errorf("%v %s, %v, %v", info.Mode(), text, err, statErr)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{link, dir, "/dev/stdout", "/dev/null"} {
		if _, err := issue(to); err == nil || !strings.Contains(err.Error(), to+" exists and is no file") {
			t.Errorf("%s: %v", to, err)
		}
	}
	if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "old" {
		t.Errorf("the file that the link leads to: %q, %v", text, err)
	}
	file := write(t, "")
	if _, _, err := run(t, "config", "show", "--config", file, "--show-secrets", "--out", path); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "stages.core.delegate") {
		t.Errorf("%s, %v", text, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Commands for a running host need its data directory, not its configuration.
func TestStatusOfNoHost(t *testing.T) {
	dir := t.TempDir()
	_, _, err := run(t, "status", "--data-dir", dir)
	if err == nil || !strings.Contains(err.Error(), "no host runs on the data directory "+dir) {
		t.Errorf("got %v", err)
	}
}

func TestExampleConfigurationsLoad(t *testing.T) {
	files, err := filepath.Glob("../../../configs/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		if _, err := config.Load(config.Options{Files: []string{file}}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
