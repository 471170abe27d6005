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
	makefile, known := read("Makefile"), map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^INPUTS_(\S+) := (.*)$`).FindAllStringSubmatch(read("test", "inputs.mk"), -1) {
		known[m[1]] = true
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
	for line := range strings.Lines(read("test", "tested.txt")) {
		if name, _, _ := strings.Cut(line, " "); !known[name] {
			t.Errorf("test/tested.txt has %s, and test/inputs.mk has not", name)
		}
	}
}
