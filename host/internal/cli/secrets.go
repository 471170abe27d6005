package cli

import (
	"context"
	"io"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/schema"
)

// mask stands for a secret value.
const mask = "***"

// maskSecrets replaces the values of settings that are not to be shown. Messages say of which
// stages the schema is not known.
func maskSecrets(ctx context.Context, cfg *config.Config, settings []config.Setting, messages io.Writer) {
	schemas := map[string]*schema.Secrets{}
	for i, s := range settings {
		path := s.Path()
		if len(path) < 4 || path[0] != "stages" {
			continue
		}
		switch stage := path[1]; path[2] {
		case "env":
			settings[i].Value = mask
		case "config":
			secrets, asked := schemas[stage]
			if !asked {
				var err error
				if secrets, err = secretsOf(ctx, cfg, stage); err != nil {
					printable.Fprintf(messages, "stages.%s.config is not shown, as the stage does not say what is secret (--show-secrets shows it): %v\n", stage, err)
				}
				schemas[stage] = secrets
			}
			if secrets == nil || secrets.Hide(path[3:]) {
				settings[i].Value = mask
			}
		}
	}
}

// secretsOf asks the binary of a stage.
func secretsOf(ctx context.Context, cfg *config.Config, stage string) (*schema.Secrets, error) {
	b, err := pluginOf(cfg, stage)
	if err != nil {
		return nil, err
	}
	var secrets *schema.Secrets
	err = askPlugin(ctx, cfg, b, func(_ context.Context, p *process.Process) (err error) {
		secrets, err = schema.ParseSecrets(p.Description().GetConfigSchema())
		return err
	})
	return secrets, err
}
