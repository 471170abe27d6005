package sdk_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/doc"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated parts of docs/sdk.md and docs/apistage.md")

const reference = "../docs/sdk.md"

// topic is a part of a reference.
type topic struct {
	name  string
	names []string
}

// topics are what is in the reference, under which heading.
var topics = []topic{
	{"The stage", []string{"Stage.Name", "Stage.Version", "Stage.Summary", "Stage.New", "Stage.Needs", "Stage.Config", "Stage.ConfigSchema", "Stage.Validate", "Stage.Kubernetes", "Stage.Tracing",
		"Stage.RestOnOneProcessor", "Main", "Serve"}},
	{"Who it is", []string{"Env.Name", "Env.Generation", "Env.DataDir", "Env.Flags", "Env.Config", "DecodeConfig", "ConfigProblem.Error"}},
	{"What it serves", []string{"Env.Claim", "Env.ClaimPrefix", "Env.SetClaims", "Exact", "Prefix", "Child", "Env.ListPaths", "Env.MuxComplete", "Env.ReportSizes"}},
	{"Requests", []string{"Env.Next", "Env.Call", "Frames", "Decline", "UserFrom", "User.In", "RequestInfoFrom", "Error",
		"AuditAnnotation", "Warn", "DrainingFrom", "Env.Initializing"}},
	{"The server and other stages", []string{"Env.Client", "Env.Host", "Env.Delegates"}},
	{"What operators see", []string{"Env.Log", "Env.Metrics", "Env.AddMetrics", "Env.Tracer", "Env.HealthCheck", "Env.DebugPage"}},
	{"Its life", []string{"Env.OnPrepareRun", "Env.PostStartHook", "Env.Lead", "Env.PreShutdownHook", "Env.OnDestroy", "Env.Signal", "Env.Context", "Env.Draining"}},
}

// unlisted need no words in the reference.
var unlisted = []string{
	"Claim.Covers", "Claim.String", "Duration.MarshalText", "Duration.UnmarshalText", "Duration.String",
	"NewService",                                                   // for tests, see stagetest
	"HoldResponse", "SetHostHeader", "SetHostTrailer", "SendAudit", // for apistage
}

// The reference has every exported function, method and field of the environment and
// of the stage, with the first sentence of its documentation; -update writes it.
func TestReference(t *testing.T) {
	known := documented(parsePackage(t, "."), map[string]string{"Env": "env", "User": "user"})
	maps.DeleteFunc(known, func(name string, e entry) bool {
		of, _, _ := strings.Cut(name, ".")
		return of == "Service" || e.field && of != "Env" && of != "Stage"
	})
	checkGenerated(t, reference, "reference", tables(t, known, topics, unlisted))
}

// stagetestTopics are the reference of package stagetest.
var stagetestTopics = []topic{
	{"A stage under test", []string{"Start", "StartProcess", "Build", "Launch", "LaunchProcess",
		"Options.Config", "Options.Flags", "Options.User", "Options.Next", "Options.Delegates", "Options.API"}},
	{"Requests to it", []string{"Stage.URL", "Stage.Get", "Stage.Do",
		"Call.Method", "Call.Path", "Call.Body", "Call.Header", "Call.User", "Call.Context",
		"Answer.Status", "Answer.Header", "Answer.Body", "Answer.Declined", "Answer.Unclaimed", "Answer.Called", "Answer.Annotations", "Answer.Warnings", "Stage.Declined"}},
	{"What the host does", []string{"Stage.Configure", "Stage.Configured", "Stage.PrepareRun", "Stage.Prepared", "Stage.Problems",
		"Stage.Claims", "Stage.Claimed", "Stage.AwaitClaimed", "Stage.AwaitSignals", "Stage.RunPostStartHooks", "Stage.RunPreShutdownHooks",
		"Stage.Health", "Stage.Metrics", "Stage.Drain", "Stage.Stop", "Stage.RPC", "Stage.Socket"}},
	{"Its process", []string{"Stage.PID", "Stage.Exited", "Stage.ExitCode", "Stage.LoseHost", "Stage.Log"}},
}

// The same for what tests use.
func TestReferenceStagetest(t *testing.T) {
	known := documented(parsePackage(t, "stagetest"), map[string]string{"Stage": "stage", "Answer": "got"})
	checkGenerated(t, reference, "stagetest", tables(t, known, stagetestTopics, nil))
}

// tables makes a table of each topic, and wants everything that is known to be in one.
func tables(t *testing.T, known map[string]entry, topics []topic, unlisted []string) string {
	t.Helper()
	var b strings.Builder
	for _, topic := range topics {
		fmt.Fprintf(&b, "### %s\n\n", topic.name)
		for _, name := range topic.names {
			entry, ok := known[name]
			if !ok {
				t.Errorf("%s is not in the package", name)
				continue
			}
			delete(known, name)
			fmt.Fprintf(&b, "- `%s`: %s\n", entry.form, entry.synopsis)
		}
		b.WriteString("\n")
	}
	maps.DeleteFunc(known, func(name string, _ entry) bool { return slices.Contains(unlisted, name) })
	for _, name := range slices.Sorted(maps.Keys(known)) {
		t.Errorf("%s belongs to a topic of the reference", name)
	}
	return b.String()
}

// structs are the types of package apistage whose fields are in docs/apistage.md. The
// others are for servers that are there already, as Kubernetes' own.
var structs = []string{"Group", "Kind", "Column", "Scale", "Call", "Custom", "Setup"}

// functions are those of apistage that a group is made with.
var functions = []string{"Group.Stage", "Action", "Connect", "Table", "Replace"}

// The tables of docs/apistage.md say what the types say.
func TestReferenceGroup(t *testing.T) {
	const file = "../docs/apistage.md"
	p := parsePackage(t, "apistage")
	for _, name := range structs {
		i := slices.IndexFunc(p.Types, func(typ *doc.Type) bool { return typ.Name == name })
		if i < 0 {
			t.Errorf("%s is not in the package", name)
			continue
		}
		checkGenerated(t, file, "fields of "+name, fieldTable(p.Types[i]))
	}
	for _, typ := range p.Types {
		if len(fields(typ)) > 0 && !slices.Contains(structs, typ.Name) && typ.Name != "Server" {
			t.Errorf("%s has fields, and no table", typ.Name)
		}
	}
	known := documented(p, nil)
	var b strings.Builder
	for _, name := range functions {
		fmt.Fprintf(&b, "- `%s`: %s\n", name, known[name].synopsis)
	}
	checkGenerated(t, file, "functions", b.String())
}

// fieldTable has all fields of a struct, with all that is said about them.
func fieldTable(typ *doc.Type) string {
	var b strings.Builder
	for _, f := range fields(typ) {
		fmt.Fprintf(&b, "- `%s`: %s\n", strings.Join(f.names, "`, `"), cmp.Or(cell(f.text), "`"+f.typ+"`"))
	}
	return b.String()
}

// The table of examples has their real length.
func TestReferenceExamples(t *testing.T) {
	var b strings.Builder
	b.WriteString("| | lines | what it shows |\n|---|---|---|\n")
	for _, example := range []struct{ name, shows string }{
		{"hello", "one path"},
		{"readonly", "refusing, exemptions by configuration, audit annotations"},
		{"ratelimit", "state for each user, `Retry-After`, metrics"},
		{"cache", "calling, keeping responses, and when that is right"},
		{"tenancy", "changing requests, and who may"},
		{"redact", "changing responses, watches and tables included"},
		{"wardle", "an API group: the types of Kubernetes' sample API server, with its admission plugin"},
		{"backup", "an API group with a worker, which one process at a time runs"},
		{"notes", "an API group with storage of its own, in SQLite"},
		{"node-hello", "a stage in TypeScript, from the protocol alone"},
		{"python-hello", "a stage in Python, from the protocol alone"},
	} {
		fmt.Fprintf(&b, "| [%s](../examples/%[1]s) | %d | %s |\n", example.name, linesOf(t, "../examples/"+example.name), example.shows)
	}
	checkGenerated(t, reference, "examples", b.String())
}

// linesOf counts the lines of a directory's programs, without tests and without what is
// generated.
func linesOf(t *testing.T, dir string) (lines int) {
	t.Helper()
	for _, pattern := range []string{"*.go", "*/*.go", "stage.ts", "catena-stage-python-*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "node_modules") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines += strings.Count(string(text), "\n")
		}
	}
	return lines
}

// The programs in the reference are as they say, and as long as they say.
func TestReferencePrograms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	most := []int{15, 25}
	var programs []string
	for _, block := range strings.Split(string(text), "```go\n")[1:] {
		program, _, _ := strings.Cut(block, "```")
		if strings.Contains(program, "package main") {
			programs = append(programs, program)
		}
	}
	if len(programs) != len(most) {
		t.Fatalf("%d programs, want %d", len(programs), len(most))
	}
	for i, program := range programs {
		if n := strings.Count(program, "\n"); n > most[i] {
			t.Errorf("program %d has %d lines, at most %d", i, n, most[i])
		}
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("program %d: %v\n%s", i, err, out)
		}
		if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err == nil && len(out) > 0 {
			t.Errorf("program %d is not formatted", i)
		}
	}
	hello, err := os.ReadFile("../examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(hello), programs[0]); diff != "" {
		t.Errorf("the first program is examples/hello: %s", diff)
	}
}
