package generation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// confined is a process that reads no file but one, and declares what it needs.
type confined struct {
	process.Running
	reads string
	needs *stagev1.Needs
}

func (c confined) CanRead(path string) bool { return path == c.reads }

func (c confined) Description() *stagev1.DescribeResponse {
	return &stagev1.DescribeResponse{Needs: c.needs}
}

// A stage does not start if the operator has set a flag to a file that the stage would read and cannot.
func TestFilesOfFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	in, out := file("in"), file("out")
	for name, tc := range map[string]struct {
		declares []string
		flags    []string
		want     string
	}{
		"in reach":       {[]string{"client-ca-file"}, []string{"client-ca-file=" + in}, ""},
		"out of reach":   {[]string{"client-ca-file"}, []string{"client-ca-file=" + out}, "stages.x.grants.files: the stage reads apiserver.client-ca-file, and is isolated from " + out + ": "},
		"one of several": {[]string{"tls-sni-cert-key"}, []string{"tls-sni-cert-key=" + in + "," + out + ":x"}, ""},
		"second":         {[]string{"some"}, []string{"some=" + in + "," + out}, "isolated from " + out},
		"not declared":   {[]string{"v"}, []string{"client-ca-file=" + out}, ""},
		"no file":        {[]string{"etcd-prefix"}, []string{"etcd-prefix=/registry/of/nobody"}, ""},
		"directory":      {[]string{"cert-dir"}, []string{"cert-dir=" + dir}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &Generation{spec: Spec{Name: "x"}, process: confined{reads: in, needs: &stagev1.Needs{Flags: tc.declares}}}
			err := g.checkFiles(tc.flags)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A flag of the stage takes the place of that of all stages; one without values is not set.
func TestFlagsOfTheStage(t *testing.T) {
	t.Parallel()
	all := []string{"audit-log-path=-", "feature-gates=A=true", "feature-gates=B=true", "v=2"}
	for _, c := range []struct {
		own  map[string][]string
		want []string
	}{
		{nil, all},
		{map[string][]string{"v": {"4"}, "emulated-version": {"kube=1.36"}}, []string{"audit-log-path=-", "emulated-version=kube=1.36", "feature-gates=A=true", "feature-gates=B=true", "v=4"}},
		{map[string][]string{"feature-gates": {"C=true", "A=false"}, "audit-log-path": {}}, []string{"feature-gates=C=true", "feature-gates=A=false", "v=2"}},
	} {
		if got := (Spec{Flags: c.own}).flags(all); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.own, got, c.want)
		}
	}
	if (Spec{Flags: map[string][]string{"v": {"4"}}}).Equal(Spec{}) || !(Spec{Flags: map[string][]string{}}).Equal(Spec{}) {
		t.Error("flags do not tell whether a stage needs another process")
	}
}
