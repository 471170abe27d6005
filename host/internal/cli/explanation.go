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
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(sentences(e), "\n"))
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

// sentences say what responds, and whether the user is authorized.
func sentences(e *admin.Explanation) []string {
	var all []string
	switch names := e.Asked(); {
	case e.Host:
		all = append(all, "The host itself responds.")
	case len(names) == 0:
		all = append(all, "No stage claims the path: "+ending(e)+".")
	default:
		all = append(all, strings.Join(names, " responds, or passes it on; then ")+" responds, or passes it on; then "+ending(e)+".")
	}
	for _, a := range e.Stages {
		if a.Order > 0 && e.Running && a.State != "serving" {
			all = append(all, fmt.Sprintf("Stage %s is %s: requests that come to it wait, or get 503.", a.Stage, a.State))
		}
	}
	if !e.Running {
		all = append(all, "No host runs on this data directory: these are the claims of the last run.")
	}
	if a := e.Access; a != nil {
		verdict := "may not"
		if a.Allowed {
			verdict = "may"
		}
		line := fmt.Sprintf("%s (in %s) %s %s", a.User, strings.Join(a.Groups, ", "), verdict, a.Request)
		if a.Reason != "" {
			line += ": " + a.Reason
		}
		all = append(all, line)
	}
	return all
}

// ending is what comes behind the last stage.
func ending(e *admin.Explanation) string {
	if e.Incomplete != "" {
		return fmt.Sprintf("503, since stage %s does not know all of its paths yet", e.Incomplete)
	}
	return "404"
}
