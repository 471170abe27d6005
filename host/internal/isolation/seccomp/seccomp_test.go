package seccomp

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the numbers of the system calls, and docs/system-calls.md")

const (
	root     = "../../../.."
	document = "docs/system-calls.md"
)

func architectures() []string { return []string{"amd64", "arm64"} }

// kernelNumbers are the system calls of the kernel's table as golang.org/x/sys has it.
func kernelNumbers(t *testing.T, arch string) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^\s+SYS_([A-Z0-9_]+)\s+= (\d+)$`).FindAllStringSubmatch(string(source), -1) {
		if m[1] != "ARCH_SPECIFIC_SYSCALL" { // the beginning of a range
			fmt.Fprintf(&lines, "%s %s\n", strings.ToLower(m[1]), m[2])
		}
	}
	return lines.String()
}

// TestNumbers shows that the rules are about all calls of the kernel's table: one that is new there has
// no rule until somebody has thought of one.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, arch := range architectures() {
		want := kernelNumbers(t, arch)
		file := "calls_" + arch + ".txt"
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not the table of golang.org/x/sys: run go test -update, and write a rule for what is new", file)
		}
	}
}

// known are the names of all calls, of any architecture.
func known(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, arch := range architectures() {
		text, err := os.ReadFile("calls_" + arch + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(line, " ")
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// others are the calls that another filter allows.
func others(t *testing.T, name string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	_, list, _ := strings.Cut(string(text), "\n")
	for _, call := range strings.Fields(list) {
		all[call] = true
	}
	return all
}

func TestRules(t *testing.T) {
	t.Parallel()
	docker, systemd := others(t, "docker"), others(t, "systemd")
	calls := known(t)
	seen := map[string]int{}
	for _, r := range rules() {
		for _, name := range r.names() {
			seen[name]++
			if !slices.Contains(calls, name) {
				t.Errorf("a rule is about %s, which no architecture has", name)
			}
			if r.why == "" && (!docker[name] || !systemd[name]) {
				t.Errorf("%s is allowed without a reason, and Docker or systemd refuses it", name)
			}
		}
	}
	for _, name := range calls {
		if seen[name] != 1 {
			t.Errorf("%s is in %d rules, want 1", name, seen[name])
		}
	}
}

// column is what another filter does with the calls of a rule.
func column(allows map[string]bool, names []string) string {
	by := map[bool][]string{}
	for _, name := range names {
		by[allows[name]] = append(by[allows[name]], "`"+name+"`")
	}
	switch allowed, refused := by[true], by[false]; {
	case len(refused) == 0:
		return "allows"
	case len(allowed) == 0:
		return "refuses"
	case len(allowed) < len(refused):
		return "refuses all but " + strings.Join(allowed, ", ")
	default:
		return "refuses " + strings.Join(refused, ", ")
	}
}

func table(t *testing.T) string {
	t.Helper()
	docker, systemd := others(t, "docker"), others(t, "systemd")
	var b strings.Builder
	b.WriteString("| system calls | result | why, or which | Docker's default profile | systemd's `@system-service` |\n|---|---|---|---|---|\n")
	for _, r := range rules() {
		if r.why == "" {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", strings.Join(r.names(), "`, `"), r.verdict, r.why, column(docker, r.names()), column(systemd, r.names()))
	}
	fmt.Fprintf(&b, "\nAll others that the two allow are allowed:\n%s.\n", strings.Join(strings.Fields(plain), ", "))
	return b.String()
}

// TestDocument compares the document with the rules.
func TestDocument(t *testing.T) {
	t.Parallel()
	file := filepath.Join(root, document)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- calls: .*?-->\n).*?(<!-- end -->)`)
	want := marked.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(table(t), "$", "$$")+"${2}")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not what the rules say: run go test ./host/internal/isolation/seccomp -update", document)
	}
}
