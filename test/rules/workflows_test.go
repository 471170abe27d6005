package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what GitHub runs.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Steps []struct{ Uses, Run string }
	}
}

// Workflows run what the Makefile and .ci have, with no right that they do not name.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	target, action := regexp.MustCompile(`\bmake ([a-z-]+)`), regexp.MustCompile(`^actions/[a-z-]+@v\d+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil || len(w.Jobs) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: the permissions of all jobs are %v", file, w.Permissions)
		}
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				if step.Uses != "" && !action.MatchString(step.Uses) {
					t.Errorf("%s: %s is none of GitHub's own actions", file, step.Uses)
				}
				for _, m := range target.FindAllStringSubmatch(step.Run, -1) {
					if !strings.Contains(string(makefile), "\n"+m[1]+":") {
						t.Errorf("%s: there is no make %s", file, m[1])
					}
				}
				if script, _, _ := strings.Cut(step.Run, " "); strings.HasPrefix(script, ".") {
					if info, err := os.Stat(filepath.Join(root, script)); err != nil || info.Mode()&0o100 == 0 {
						t.Errorf("%s: %s cannot be executed: %v", file, script, err)
					}
				}
			}
		}
	}
}
