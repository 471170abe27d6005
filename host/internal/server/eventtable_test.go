package server

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// kinds returns the values of the constants of the type EventKind.
func kinds(t *testing.T) (all []supervisor.EventKind) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "supervisor", "event.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "EventKind" {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, supervisor.EventKind(value))
		}
		return true
	})
	return all
}

var update = flag.Bool("update", false, "write the kinds of events in docs/status.md anew")

// docs/status.md has the kinds of events of stages, as the table has them.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	const heading = "## Kinds of events\n"
	var want strings.Builder
	want.WriteString(heading + `
<!-- Made from the table: go test ./host/internal/server -run EventsAreDocumented -update -->

What happens to stages. An Event of Kubernetes with a reason is a warning if the event is bad.

| kind | says, for example | bad | Event of Kubernetes |
|---|---|---|---|
`)
	for _, kind := range kinds(t) {
		e := supervisor.Event{
			Kind: kind, Stage: "core", Generation: "core-1", From: "core-1", To: "core-2", Limit: "memory",
			Reason: "REASON",
		}
		if kind == supervisor.StateChanged {
			e.To = lifecycle.Failed.String()
		}
		row, _ := rowOf(e)
		told, _ := describe(e)
		bad := map[bool]string{true: "yes"}[row.bad]
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", told.Kind, told.Text, bad, row.reason)
	}
	page := filepath.Join("..", "..", "..", "docs", "status.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, got, _ := strings.Cut(string(text), heading)
	if *update {
		text := strings.TrimRight(before, "\n") + "\n\n" + want.String()
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if heading+got != want.String() {
		t.Errorf("%s does not have the table: go test ./host/internal/server -run EventsAreDocumented -update", page)
	}
}

// Each kind of event is told, in the words of one row. What is an Event of Kubernetes is a warning if it is bad.
func TestEventTable(t *testing.T) {
	t.Parallel()
	table, all := eventTable(), kinds(t)
	if len(all) != len(table) {
		t.Errorf("%d kinds of events, and %d rows", len(all), len(table))
	}
	for _, kind := range all {
		e := supervisor.Event{Kind: kind, Stage: "core", Generation: "g", From: "a", To: "b", Limit: "memory", Reason: `stage "core": boom`}
		if kind == supervisor.StateChanged {
			e.To = lifecycle.Failed.String()
		}
		row, told := rowOf(e)
		got, described := describe(e)
		if !told || !described || got.Text == "" || got.Bad != row.bad {
			t.Errorf("%s is told as %+v", kind, got)
			continue
		}
		k, is := kubeEvent(e)
		if is != (row.reason != "") || is && (k.Message == "" || k.Stage != "core" || k.Warning != row.bad || strings.Contains(k.Reason, " ")) {
			t.Errorf("%s is the Event %+v", kind, k)
		}
	}
	if _, told := rowOf(supervisor.Event{Kind: supervisor.StateChanged, To: lifecycle.Serving.String()}); told {
		t.Error("each state of a process is told")
	}
}
