package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/documents"
)

// serves reports whether a command goes on until Ctrl-C.
func serves(command string) bool {
	words := strings.Fields(command)
	return words[0] == "catena" && (words[1] == "serve" || words[1] == "ui" || slices.Contains(words, "-f"))
}

// The first steps of the README are typed as they stand, in a directory that has of a clone what they name.
func TestReadme(t *testing.T) {
	t.Parallel()
	r := documents.NewSession(t, serves)
	if err := os.Symlink(filepath.Join(cluster.Root(), "examples"), filepath.Join(r.Dir, "examples")); err != nil {
		t.Fatal(err)
	}
	r.Type(t, filepath.Join(cluster.Root(), "README.md"), "Try it", "How it works")
}

// What docs/operations.md shows of a chain with one more stage is typed as it stands: after a crash of that stage and a reload that gives it a standby.
func TestOperationsDocument(t *testing.T) {
	t.Parallel()
	r := documents.NewSession(t, serves)
	plugins := filepath.Join(r.Dir, "plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join(plugins, "catena-stage-hello"), "./examples/hello")
	build.Dir, build.Env = cluster.Root(), append(os.Environ(), "CGO_ENABLED=0") // without shared libraries, of which catena lock would tell
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.Prepare(t, strings.ReplaceAll(`
~~~console host
$ cat > catena.yaml <<'END'
apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages:
  hello: {delegate: aggregator}
END
$ catena lock --config catena.yaml
$ catena serve --config catena.yaml
…
ready after 3s; in another terminal:
~~~
~~~console
$ export KUBECONFIG=$PWD/data/admin.kubeconfig
$ kill -9 $(catena status hello -o pid)
$ catena status hello
STAGE  STATE    FOR  GENERATION  PID  MEMORY  CPU  RPS  ERRORS  P99  VERSION  RESTARTS  CLAIMS  ISOLATION
hello  serving  2s   8f44e84f    1    3Mi     0s   0    0%      -    (devel)  1         1       off
…
$ sleep 2   # the times of Events have no more than seconds
$ sed -i 's/aggregator}/aggregator, standby: true}/' catena.yaml
$ catena reload
$ (cat plugins/catena-stage-hello; echo 2) > catena-stage-hello-v2; chmod +x catena-stage-hello-v2
~~~
`, "~~~", "```"))
	r.Type(t, filepath.Join(cluster.Root(), "docs", "operations.md"), "Status", "What excludes what")
}
