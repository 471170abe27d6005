package system

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/sdk/kubeversion"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/test/internal/cluster"
)

func TestVersionCommand(t *testing.T) {
	t.Parallel()
	r := runCatena(t, "version")
	want := fmt.Sprintf("^catena \\S+\nkubernetes %s\nstage protocol %d\n%s %s/%s\n$",
		regexp.QuoteMeta(kubeversion.Release()), stagev1.ProtocolVersion, "go1\\S*", runtime.GOOS, runtime.GOARCH)
	if r.code != 0 || r.stderr != "" || !regexp.MustCompile(want).MatchString(r.stdout) {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

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

// startLine is what "catena serve" prints of a stage.
var startLine = regexp.MustCompile(`(?m)^stage (\S+) +(\S+) +pid (\d+) +up after \S+$`)

// pasteLines are the two lines that "catena serve" prints for another terminal.
var pasteLines = regexp.MustCompile(`(?m)^ready after \S+; in another terminal:\n\n  (export KUBECONFIG=\S+)\n  (kubectl get (?:namespaces|--raw /))\n\n`)

// "catena serve" prints a line for each stage, and two lines with which one can go on.
func TestWhatServePrints(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	log := read(l.Process().Log)
	got := map[string]string{}
	for _, line := range startLine.FindAllStringSubmatch(string(log), -1) {
		got[line[1]] += line[3]
	}
	want := map[string]string{}
	for stage, pid := range l.Stages() {
		want[stage] = itoa(pid)
	}
	if !maps.Equal(got, want) || len(want) != 7 {
		t.Errorf("stages by process id are %v, printed are %v", want, got)
	}
	paste := pasteLines.FindSubmatch(log)
	if paste == nil {
		t.Fatalf("nothing to paste in\n%s", log)
	}
	if out := shell(t, t.TempDir(), string(paste[1])+"\n"+string(paste[2])); !regexp.MustCompile(`(?m)^default +Active +`).MatchString(out) {
		t.Errorf("the two lines print %q", out)
	}
}

// The lines are short where the data directory is in the current one.
func TestWhatServePrintsInTheCurrentDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := filepath.Dir(s.data)
	cmd := catenaCommand(t, s.args("--data-dir", "data")...)
	cmd.Dir = dir
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errorsOf(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	var paste [][]byte
	eventually(t, "it is ready", func() bool {
		paste = pasteLines.FindSubmatch(read(log.Name()))
		return paste != nil
	}, func() string { return string(read(log.Name())) })
	if !bytes.Equal(paste[1], []byte("export KUBECONFIG=$PWD/data/admin.kubeconfig")) {
		t.Errorf("printed %q", paste[1])
	}
	if out := shell(t, dir, string(paste[1])+"\nkubectl get --raw /livez"); out != "ok" {
		t.Errorf("the server is not reached: %q", out)
	}
}

// shell runs lines in a directory, with kubectl in the path, and returns what they print.
func shell(t *testing.T, dir, lines string) string {
	t.Helper()
	kubectl, err := cluster.Tool("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-e", "-c", lines)
	cmd.Dir = dir
	cmd.Env = append(slices.Clone(cluster.Environ()), "HOME="+t.TempDir(), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
