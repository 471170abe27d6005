package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What "make test" leaves out while its inputs have not changed is a target, and the inputs exist.
func TestInputsExist(t *testing.T) {
	t.Parallel()
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\\\n", " ")
	}
	makefile, known, inputs := read("Makefile"), map[string]bool{}, map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^INPUTS_(\S+) := (.*)$`).FindAllStringSubmatch(read("test", "inputs.mk"), -1) {
		known[m[1]], inputs[m[1]] = true, m[2]
		if !strings.Contains(makefile, "\ntest-"+m[1]+":") {
			t.Errorf("the Makefile has no target test-%s", m[1])
		}
		for _, path := range strings.Fields(m[2]) {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("INPUTS_%s: %v", m[1], err)
			}
		}
	}
	conditional := regexp.MustCompile(`\$\(addprefix unless-tested-,([^)]*)\)`).FindStringSubmatch(makefile)
	if conditional == nil || len(strings.Fields(conditional[1])) != len(known) {
		t.Errorf("make test leaves out %q, and test/inputs.mk has %v", conditional, known)
	}
	// The tests of a target are among its inputs.
	files, err := filepath.Glob(filepath.Join(root, "test", "system", "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := "test/system/" + filepath.Base(file)
		if strings.Contains(read(name), `"kube-1.36"`) && !strings.Contains(inputs["other-release"], name) {
			t.Errorf("%s needs stages of another release, and is not in INPUTS_other-release", name)
		}
	}
	for line := range strings.Lines(read("test", "tested.txt")) {
		if name, _, _ := strings.Cut(line, " "); !known[name] {
			t.Errorf("test/tested.txt has %s, and test/inputs.mk has not", name)
		}
	}
}
