package sdk_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Importing the SDK compiles nothing of Kubernetes, of koanf or of the host, and
// stays small.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	for _, p := range packages {
		for _, forbidden := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/knadh/", "go.etcd.io/", "github.com/catena-dev/catena/host", "github.com/catena-dev/catena/plugins"} {
			if strings.HasPrefix(p, forbidden) {
				t.Errorf("depends on %s", p)
			}
		}
	}
	// go-plugin and gRPC, client_golang and the interfaces of OpenTelemetry are what there
	// is to it.
	if most := 170; len(packages) > most {
		t.Errorf("%d packages beyond the standard library, at most %d", len(packages), most)
	}
	t.Logf("%d packages beyond the standard library", len(packages))
}
