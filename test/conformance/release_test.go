package conformance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var (
	kube   = flag.String("kube", "", "minor release of Kubernetes, such as 1.36, of kube-apiserver and of the stages that -stages names")
	stages = flag.String("stages", "core", "the stages of the release that -kube names, with commas between them")
)

// exception is what is different in the cases with stages of another release than that of go.mod.
type exception struct {
	Cases []string `json:"cases"` // PROFILE/FILE/NAME
	Why   string   `json:"why"`
	// Alone is set if that is so only while not all stages are of that release.
	Alone bool `json:"alone,omitempty"`
	// Want is kube-apiserver's status in that release. Without it, the responses differ.
	Want int `json:"want,omitempty"`
	// Status is Catena's where they differ, kube-apiserver's by default.
	Status int `json:"status,omitempty"`
}

// exceptions are those of a release, by case.
type exceptions map[string][]exception

func loadExceptions(t *testing.T) exceptions {
	t.Helper()
	if *kube == "" {
		return nil
	}
	file := filepath.Join("testdata", "kube-"+*kube+".yaml")
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("-kube=%s: %v", *kube, err)
	}
	var all []exception
	readYAML(t, file, &all)
	some := len(strings.Split(*stages, ",")) < len(chain)
	byCase := exceptions{}
	for _, e := range all {
		if e.Why == "" {
			t.Errorf("%s does not say why %v is different", file, e.Cases)
		}
		if e.Alone && !some {
			continue
		}
		for _, name := range e.Cases {
			byCase[name] = append(byCase[name], e)
		}
	}
	return byCase
}

// chain are the stages that there is a release of.
var chain = []string{"aggregator", "core", "extensions"}

// binaries are the settings that make stages those of a release.
func binaries() ([]string, error) {
	if *kube == "" {
		return nil, nil
	}
	var set []string
	for stage := range strings.SplitSeq(*stages, ",") {
		if !slices.Contains(chain, stage) {
			return nil, fmt.Errorf("-stages=%s: there are %s", *stages, strings.Join(chain, ","))
		}
		path, err := cluster.Stage(stage, *kube)
		if err != nil {
			return nil, err
		}
		set = append(set, "stages."+stage+".binary="+path)
	}
	return set, nil
}

// check makes sure that the cases of the exceptions exist.
func (x exceptions) check(t *testing.T, profile string, p profile) {
	t.Helper()
	known := map[string]bool{}
	for _, f := range p.files {
		for _, c := range f.cases {
			known[profile+"/"+f.name+"/"+c.Name] = true
		}
	}
	for name := range x {
		if strings.HasPrefix(name, profile+"/") && !known[name] {
			t.Errorf("there is no case %q", name)
		}
	}
}

// applied returns a case as it is with the exceptions, and whether the responses differ, with Catena's status then.
func (x exceptions) applied(name string, tc testCase) (_ testCase, differs bool, status int) {
	for _, e := range x[name] {
		switch {
		case e.Want != 0:
			tc.Want = &e.Want
		case !*self:
			differs, status = true, e.Status
		}
	}
	if differs && status == 0 {
		status = *tc.Want
	}
	return tc, differs, status
}
