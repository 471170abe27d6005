package server

import (
	"go/ast"
	"go/parser"
	"go/token"
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
