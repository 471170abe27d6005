package cli

import (
	"cmp"
	"context"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// plugin is a row of "catena plugins".
type plugin struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
	// Kubernetes is the release of Kubernetes that the stage serves.
	Kubernetes string `json:"kubernetes,omitempty"`
	Protocol   int    `json:"protocol,omitempty"`
	SDK        string `json:"sdk,omitempty"`
	Summary    string `json:"summary,omitempty"`
	// Needs is what the stage has to be granted.
	Needs grants.Grants `json:"needs"`
	// Control is how the control socket is protected: mtls or directory.
	Control string `json:"control,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Refused string `json:"refused,omitempty"`
}

func pluginsCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "plugins",
		Short: "List the binaries in the plugin directories",
		Long: `List the binaries catena-stage-NAME in the directories of pluginDirs: name, version, release
of Kubernetes, protocol, how its control socket is protected (mtls: by one-time certificates;
directory: by the mode of its directory alone), checksum and path, what it needs to be granted in
stages.NAME.grants, or why a binary is refused. Each one that is not refused is started and asked
what it is; none is configured. One that needs a lock and is not in catena.lock is refused, so that it is
not executed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if err := flags.adopt(cmd.Context()); err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			found, scanErr := process.Scan(cfg.PluginDirs)
			if err := printPlugins(cmd.OutOrStdout(), output, describeAll(cmd.Context(), cfg, found)); err != nil {
				return err
			}
			return scanErr
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	return cmd
}

// describeAll asks every plugin that is not refused what it is.
func describeAll(ctx context.Context, cfg *config.Config, found []process.Found) []plugin {
	rows := make([]plugin, 0, len(found))
	for _, f := range found {
		row := plugin{Name: f.Name, Path: f.Path, SHA256: f.SHA256}
		if f.Refused == nil {
			f.Refused = askPlugin(ctx, cfg, f.Binary, func(_ context.Context, p *process.Process) error {
				d := p.Description()
				row.Version, row.SDK, row.Summary, row.Protocol = d.GetVersion(), d.GetSdk(), d.GetSummary(), stagev1.ProtocolVersion
				row.Control, row.Needs, row.Kubernetes = string(p.Control()), grants.Of(d.GetNeeds()), d.GetKubernetes().GetRelease()
				return nil
			})
		}
		if f.Refused != nil {
			row.Refused = f.Refused.Error()
		}
		rows = append(rows, row)
	}
	return rows
}

func printPlugins(out io.Writer, format string, rows []plugin) error {
	if format == "json" {
		return printJSON(out, rows)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	printable.Fprintf(w, "NAME\tVERSION\tKUBERNETES\tPROTOCOL\tCONTROL\tSHA256\tPATH\n")
	for _, r := range rows {
		if r.Refused == "" {
			printable.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%.12s\t%s\n", r.Name, r.Version, cmp.Or(r.Kubernetes, "-"),
				r.Protocol, r.Control, r.SHA256, r.Path)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if needs := r.Needs.String(); needs != "{}" {
			if _, err := printable.Fprintf(out, "%s needs grants: %s\n", r.Name, needs); err != nil {
				return err
			}
		}
	}
	for _, r := range rows {
		if r.Refused != "" {
			if _, err := printable.Fprintf(out, "refused: %s\n", printable.Safe(printable.Lines(r.Refused))); err != nil {
				return err
			}
		}
	}
	return nil
}
