package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/schema"
)

func configSchemaCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "schema STAGE",
		Short: "Print the JSON schema of a stage's own configuration",
		Long: `Print the JSON schema of what stages.STAGE.config may have. The stage's binary is
started, asked, and ended; the stage need not be in the chain, a file in pluginDirs is
enough.`,
		Example: `  catena config schema hello --config configs/hello.yaml`,
		Args:    wantArgs(1, "the name of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.adopt(cmd.Context()); err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			b, err := pluginOf(cfg, args[0])
			if err != nil {
				return err
			}
			var text string
			err = askPlugin(cmd.Context(), cfg, b, func(_ context.Context, p *process.Process) error {
				text = p.Description().GetConfigSchema()
				return nil
			})
			if err != nil {
				return err
			}
			if text == "" {
				return fmt.Errorf("stage %q describes no schema: it takes any configuration, or checks it by itself", args[0])
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, []byte(text), "", "  "); err != nil {
				return fmt.Errorf("stage %q describes a schema that is no JSON: %w", args[0], err)
			}
			_, err = printable.Fprintln(cmd.OutOrStdout(), printable.Safe(printable.JSON(pretty.Bytes())))
			return err
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeStages(1)
	return cmd
}

// validateWithStages has every stage of the chain check its configuration. The error joins
// the problems. A stage without a good binary, or with one that is not locked, is skipped: that
// is reported anyway.
func validateWithStages(ctx context.Context, cfg *config.Config, flags []string) error {
	var errs []error
	for _, name := range cfg.Order {
		b, err := declared.FindBinary(cfg, name)
		if err != nil {
			continue
		}
		st := cfg.Stages[name]
		locked, approve := true, declared.Approval(cfg, b.Name, b.Path)
		err = askApproved(ctx, cfg, b, func(c process.Contents) error {
			if approve == nil {
				return nil
			}
			err := approve(c)
			locked = err == nil
			return err
		}, func(ctx context.Context, p *process.Process) error {
			granted, needs := declared.Grants(st), p.Description().GetNeeds()
			if err := granted.Check(name, needs); err != nil {
				return err
			}
			selected, err := granted.SelectFlags(needs, flags, nil)
			if err != nil {
				return fmt.Errorf("stages.%s.%w", name, err)
			}
			return schema.CheckStage(ctx, name, p, st.Config, selected)
		})
		if locked {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// pluginOf is the binary of a stage that need not be in the chain.
func pluginOf(cfg *config.Config, name string) (process.Binary, error) {
	if _, ok := cfg.Stages[name]; ok {
		return declared.FindBinary(cfg, name)
	}
	return process.Find(cfg.PluginDirs, name)
}
