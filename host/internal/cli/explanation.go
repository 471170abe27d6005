package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/relay"
)

func printExplanation(out io.Writer, format string, e *admin.Explanation) error {
	if format == "json" {
		return printJSON(out, e)
	}
	printable.Fprintf(out, "%s %s\n\n", e.Method, e.Path)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	outcomes := ""
	if e.Running {
		outcomes = "\tOUTCOMES"
	}
	printable.Fprintf(w, "STAGE\tASKED\tCLAIM\tSTATE%s\n", printable.Safe(outcomes))
	for _, a := range e.Stages {
		order, claim, state := "no", "none covers the path", a.State
		if a.Order > 0 {
			order = fmt.Sprintf("%d.", a.Order)
		}
		if a.Claim != "" {
			claim = a.Claim
		}
		if state == "" {
			state = "-"
		}
		if e.Running {
			outcomes = "\t" + printable.Line(outcomesOf(a))
		}
		printable.Fprintf(w, "%s\t%s\t%s\t%s%s\n", a.Stage, order, claim, state, printable.Safe(outcomes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := printable.Fprintf(out, "\n")
	for _, sentence := range e.Sentences() {
		_, err = printable.Fprintln(out, sentence)
	}
	return err
}

// outcomesOf returns the outcomes of the stage as text, the most frequent ones first.
func outcomesOf(a admin.ExplainStage) string {
	names := slices.SortedFunc(maps.Keys(a.Outcomes), func(x, y relay.Outcome) int {
		return cmp.Or(cmp.Compare(a.Outcomes[y], a.Outcomes[x]), strings.Compare(string(x), string(y)))
	})
	words := make([]string, len(names))
	for i, o := range names {
		words[i] = fmt.Sprintf("%s %d", o, a.Outcomes[o])
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}
