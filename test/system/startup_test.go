package system

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

func freePort(t *testing.T) string {
	t.Helper()
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newSite(t)
	s.refused(t, runCatena(t, s.args("--secure-port", port)...), "127.0.0.1:"+port, "in use", "secure-port")
	l.Close()
	s.works(t, s.args("--secure-port", port)...)
}

// A limit of open files with which the stages could not work ends the start with the number that is needed; with that number the server
// is ready, and serves.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	const needed = 736 // bounds.HostDescriptors, and bounds.StageDescriptors for each of the three stages
	s := newSite(t)
	cmd := catenaCommand(t, "serve", "--config", filepath.Join(cluster.Root(), "configs", "kube-apiserver.yaml"), "--data-dir", s.data, "--set", "apiserver.secure-port=0")
	cmd.Args = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, needed-1)}, cmd.Args...)
	cmd.Path = "/bin/sh"
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("catena: this process may have %d files and connections open, and needs %d with these stages", needed-1, needed); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s", err, out)
	}
	c := catena(t, cluster.Options{OpenFiles: needed})
	for range 20 {
		if got := do(t, c.Config(cluster.Admin), http.MethodGet, "/api/v1/namespaces", ""); got.code != http.StatusOK {
			t.Errorf("%d %s", got.code, got.body)
		}
	}
	text, err := os.ReadFile(c.Process().Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^.*(?:\[WARN\]|\[ERROR\]|too many open files).*$`).FindAllString(string(text), -1) {
		if !strings.Contains(line, slowMachine) {
			t.Error(line)
		}
	}
}
