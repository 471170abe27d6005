package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/klogr"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// describeTimeout bounds the start of a plugin that is only asked what it is.
const describeTimeout = 15 * time.Second

// plugin is a row of "catena plugins".
type plugin struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	Version  string `json:"version,omitempty"`
	Protocol int    `json:"protocol,omitempty"`
	SDK      string `json:"sdk,omitempty"`
	Summary  string `json:"summary,omitempty"`
	// Control is how the control socket is protected: mtls or folder.
	Control string `json:"control,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Refused string `json:"refused,omitempty"`
}

func pluginsCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "plugins",
		Short: "List what is in the plugin folders",
		Long: `List the binaries catena-stage-NAME in the folders of pluginDirs: name, version,
protocol, how its control socket is protected (mtls: by one-time certificates;
folder: by the mode of its folder alone), checksum and path, or why a binary is refused. Each one that is not
refused is started and asked what it is; none is configured.`,
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
			rows, err := describeAll(cmd.Context(), found)
			if err != nil {
				return err
			}
			if err := printPlugins(cmd.OutOrStdout(), output, rows); err != nil {
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
func describeAll(ctx context.Context, found []process.Found) ([]plugin, error) {
	// gRPC, which logs through klog here, has a lot to say about connections that end.
	if err := klogr.Install(hclog.NewNullLogger(), "", ""); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "catena-")
	if err != nil {
		return nil, fmt.Errorf("folder for sockets: %w", err)
	}
	defer os.RemoveAll(dir)
	rows := make([]plugin, 0, len(found))
	for _, f := range found {
		row := plugin{Name: f.Name, Path: f.Path, SHA256: f.SHA256}
		if f.Refused == nil {
			f.Refused = describe(ctx, filepath.Clean(dir), f.Binary, &row)
		}
		if f.Refused != nil {
			row.Refused = f.Refused.Error()
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func describe(ctx context.Context, dir string, b process.Binary, row *plugin) error {
	l, err := process.NewListener(dir, b.Name, "describe")
	if err != nil {
		return err
	}
	defer l.Close()
	p, err := process.Start(ctx, process.Spec{
		Stage: b.Name, Binary: b.Path, Listener: l, RuntimeDir: dir,
		StartTimeout: describeTimeout, Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		return err
	}
	d := p.Description()
	row.Version, row.SDK, row.Summary, row.Protocol = d.GetVersion(), d.GetSdk(), d.GetSummary(), stagev1.ProtocolVersion
	row.Control = string(p.Control())
	return p.Kill(ctx)
}

func printPlugins(out io.Writer, format string, rows []plugin) error {
	if format == "json" {
		return printJSON(out, rows)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVERSION\tPROTOCOL\tCONTROL\tSHA256\tPATH")
	for _, r := range rows {
		if r.Refused == "" {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%.12s\t%s\n", r.Name, r.Version, r.Protocol, r.Control, r.SHA256, r.Path)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Refused != "" {
			if _, err := fmt.Fprintf(out, "refused: %s\n", r.Refused); err != nil {
				return err
			}
		}
	}
	return nil
}
