package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/sdk/claim"
)

// link is a stage as "catena chain" shows it.
type link struct {
	Name     string   `json:"name"`
	Delegate string   `json:"delegate,omitempty"`
	Binary   string   `json:"binary,omitempty"`
	Claims   []string `json:"claims,omitempty"`
	Problem  string   `json:"problem,omitempty"`
}

func chainCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "chain",
		Short: "Print the resolved chain without serving anything",
		Long: `Print the stages from head to tail: the binary of each, the stage that it
delegates to, and the paths that it claims. A stage reports its claims when it
runs, so what is printed are those of the last run on the data directory, if there
was one. A claim that ends in /** covers the path and everything below it, one that
ends in /* the paths with one more segment.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json", "dot"); err != nil {
				return err
			}
			if err := flags.adopt(cmd.Context()); err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			links, err := resolve(cfg)
			return errors.Join(printChain(cmd.OutOrStdout(), output, links), err)
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json", "dot")
	return cmd
}

// resolve looks up what is known of each stage. The error joins what is wrong
// with their binaries.
func resolve(cfg *config.Config) ([]link, error) {
	known := datadir.ReadClaims(cfg.DataDir)
	var links []link
	var errs []error
	for _, name := range cfg.Order {
		l := link{Name: name, Delegate: cfg.Stages[name].Delegate, Claims: claim.Texts(known[name])}
		b, err := declared.FindBinary(cfg, name)
		if err != nil {
			errs = append(errs, err)
			l.Problem = err.Error()
		}
		l.Binary = b.Path
		links = append(links, l)
	}
	return links, errors.Join(errs...)
}

func printChain(out io.Writer, format string, links []link) error {
	switch format {
	case "json":
		return printJSON(out, links)
	case "dot":
		return printDot(out, links)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	printable.Fprintf(w, "STAGE\tDELEGATE\tBINARY\tCLAIMS\n")
	for _, l := range links {
		delegate, claims := l.Delegate, "not known before the first run"
		if delegate == "" {
			delegate = "(not found)"
		}
		if len(l.Claims) > 0 {
			claims = abridge(l.Claims)
		}
		printable.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Name, delegate, l.Binary, claims)
	}
	return w.Flush()
}

// abridge shows the first few claims; -o json has them all.
func abridge(claims []string) string {
	const shown = 3
	if len(claims) <= shown {
		return strings.Join(claims, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(claims[:shown], " "), len(claims)-shown)
}

func printDot(out io.Writer, links []link) error {
	var b strings.Builder
	b.WriteString("digraph catena {\n\trankdir=LR;\n\tnode [shape=box];\n")
	for _, l := range links {
		printable.Fprintf(&b, "\t%q;\n", l.Name)
		next := l.Delegate
		if next == "" {
			next = "not found"
		}
		printable.Fprintf(&b, "\t%q -> %q;\n", l.Name, next)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(out, b.String())
	return err
}
