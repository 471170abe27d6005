package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/kubeversion"
	"github.com/catena-dev/catena/test/internal/cluster"
)

func TestVersionOutput(t *testing.T) {
	t.Parallel()
	r := runCatena(t, "version")
	want := regexp.MustCompile(`^catena \S+\nkubernetes ` + regexp.QuoteMeta(kubeversion.Release()) + `\nstage protocol 1\n` +
		regexp.QuoteMeta(runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH) + `\n$`)
	if r.code != 0 || r.stderr != "" || !want.MatchString(r.stdout) {
		t.Errorf("exit code %d\n%s%s\nwant %s", r.code, r.stdout, r.stderr, want)
	}
	if !regexp.MustCompile(`^v1\.\d+\.\d+$`).MatchString(kubeversion.Release()) {
		t.Errorf("no client can parse the version %q", kubeversion.Release())
	}
}

const twoStages = `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages: {front: {lock: off, delegate: behind, grants: {claims: ["/**"]}}, behind: {lock: off, grants: {claims: ["/**"]}}}
`

// Standard output is for the operator: a line for each stage when it is up, and what to
// paste for a first session when the server is ready. Messages go elsewhere.
func TestServeOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stdout := filepath.Join(dir, "stdout")
	out, err := os.Create(stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := catenaCommand(t, "serve", "--config", write(t, "catena.yaml", twoStages), "--data-dir", "data",
		"--set", "pluginDirs="+plugins(t, "front", "behind"), "--bind-address", "127.0.0.1", "--secure-port", "0")
	cmd.Dir, cmd.Stdout = dir, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	eventually(t, "the last line is printed", func() bool { return strings.Contains(string(read(stdout)), "kubectl get --raw /\n\n") },
		func() string { return string(read(stdout)) })

	text := string(read(stdout))
	want := regexp.MustCompile(`^(?:stage (front|behind) +v1 +pid (\d+) +up after [0-9.]+m?s\n){2}` +
		`ready after [0-9.]+m?s; in another terminal:\n\n  export KUBECONFIG=\$PWD/data/admin\.kubeconfig\n  kubectl get --raw /\n\n$`)
	if !want.MatchString(text) {
		t.Errorf("standard output is\n%s\nwant %s", text, want)
	}
	children := cluster.Children(cmd.Process.Pid)
	for _, name := range []string{"front", "behind"} {
		m := regexp.MustCompile(`(?m)^stage `+name+` .* pid (\d+) `).FindAllStringSubmatch(text, -1)
		if len(m) != 1 {
			t.Errorf("%d lines for stage %s", len(m), name)
			continue
		}
		if pid, err := strconv.Atoi(m[0][1]); err != nil || children[pid] == "" {
			t.Errorf("stage %s: process %s is none of the host's %v", name, m[0][1], children)
		}
	}
	if out := pasted(t, dir, []byte(text)); !strings.Contains(out, "/readyz") {
		t.Errorf("what is pasted prints %q", out)
	}

	if err := syscall.Kill(cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if after := string(read(stdout)); after != text {
		t.Errorf("more has been printed by the end:\n%s", after)
	}
}

// pasteLines are the two lines that "catena serve" prints for another terminal.
var pasteLines = regexp.MustCompile(`(?m)^ready after \S+; in another terminal:\n\n  (export KUBECONFIG=\S+)\n  (kubectl get (?:namespaces|--raw /))\n\n`)

// In a chain with core, what is to be pasted shows namespaces, from any directory.
func TestServeOutputWithCore(t *testing.T) {
	t.Parallel()
	if out := pasted(t, t.TempDir(), read(theLong(t).Process().Log)); !regexp.MustCompile(`(?m)^default +Active +`).MatchString(out) {
		t.Errorf("what is pasted prints %q", out)
	}
}

// pasted runs what is to be pasted, and returns what it prints.
func pasted(t *testing.T, dir string, printed []byte) string {
	t.Helper()
	kubectl, err := cluster.Tool("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	lines := pasteLines.FindSubmatch(printed)
	if lines == nil {
		t.Fatalf("nothing to paste in\n%s", printed)
	}
	cmd := exec.Command("sh", "-e", "-c", string(lines[1])+"\n"+string(lines[2]))
	cmd.Dir = dir
	cmd.Env = append(cluster.Environ(), "HOME="+t.TempDir(), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("what is pasted gives %q, %v", out, err)
	}
	return string(out)
}
