package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/schema"
	"github.com/catena-dev/catena/host/internal/server"
	"github.com/catena-dev/catena/sdk/klogr"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func configSchemaCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "schema STAGE",
		Short: "Print the JSON schema of a stage's own configuration",
		Long: `Print the JSON schema of what may stand in stages.STAGE.config. The stage's binary is
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
			var text string
			err = askPlugin(cmd.Context(), cfg, args[0], func(_ context.Context, p *process.Process) error {
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
			_, err = fmt.Fprintln(cmd.OutOrStdout(), pretty.String())
			return err
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeStages(1)
	return cmd
}

// askPlugin starts a stage's binary, without configuring it, for as long as ask takes.
func askPlugin(ctx context.Context, cfg *config.Config, name string, ask func(context.Context, *process.Process) error) error {
	// gRPC, which logs through klog here, has a lot to say about connections that end.
	if err := klogr.Install(hclog.NewNullLogger(), "", ""); err != nil {
		return err
	}
	var b process.Binary
	var err error
	if st, ok := cfg.Stages[name]; ok && st.Binary != "" {
		b, err = server.FindBinary(cfg, name)
	} else {
		b, err = process.Find(cfg.PluginDirs, name)
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "catena-")
	if err != nil {
		return fmt.Errorf("folder for sockets: %w", err)
	}
	defer os.RemoveAll(dir)
	l, err := process.NewListener(filepath.Clean(dir), name, "ask")
	if err != nil {
		return err
	}
	defer l.Close()
	p, err := process.Start(ctx, process.Spec{
		Stage: name, Binary: b.Path, SHA256: cfg.Stages[name].Sha256, Env: cfg.Stages[name].Env,
		Listener: l, RuntimeDir: dir, StartTimeout: describeTimeout, Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	err = ask(ctx, p)
	return errors.Join(err, p.Kill(context.WithoutCancel(ctx)))
}

// validateWithStages has every stage of the chain say what is wrong with its
// configuration. The error joins that. A stage without a good binary is skipped, since
// that is told anyway.
func validateWithStages(ctx context.Context, cfg *config.Config, flags []string) error {
	var errs []error
	for _, name := range cfg.Order {
		if _, err := server.FindBinary(cfg, name); err != nil {
			continue
		}
		errs = append(errs, askPlugin(ctx, cfg, name, func(ctx context.Context, p *process.Process) error {
			return validateStage(ctx, p, name, cfg.Stages[name].Config, flags)
		}))
	}
	return errors.Join(errs...)
}

// validateStage is what the supervisor does before it configures a stage.
func validateStage(ctx context.Context, p *process.Process, name string, own map[string]any, flags []string) error {
	problems, err := schema.Check(p.Description().GetConfigSchema(), own)
	if err != nil {
		return fmt.Errorf("stage %q: %w", name, err)
	}
	if len(problems) > 0 {
		return schema.Errors(name, problems)
	}
	encoded, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("stages.%s.config: %w", name, err)
	}
	resp, err := p.Client().ValidateConfig(ctx, &stagev1.ValidateConfigRequest{Config: encoded, Flags: flags})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	for _, problem := range resp.GetProblems() {
		problems = append(problems, schema.Problem{Key: problem.GetKey(), Message: problem.GetMessage()})
	}
	return errors.Join(err, schema.Errors(name, problems))
}
