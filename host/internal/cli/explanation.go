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
	"github.com/catena-dev/catena/host/internal/relay"
)

func printExplanation(out io.Writer, format string, e *admin.Explanation) error {
	if format == "json" {
		return printJSON(out, e)
	}
	fmt.Fprintf(out, "%s %s\n\n", e.Method, e.Path)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	head := "STAGE\tASKED\tCLAIM\tSTATE"
	if e.Running {
		head += "\tOUTCOMES"
	}
	fmt.Fprintln(w, head)
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
		line := strings.Join([]string{a.Stage, order, claim, state}, "\t")
		if e.Running {
			line += "\t" + outcomesOf(a)
		}
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(e.Sentences(), "\n"))
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
