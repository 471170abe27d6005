package kube

import (
	"net/http"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// noConfig is the schema of a stage that is configured by the API server's flags alone.
const noConfig = `{"type":"object","additionalProperties":false}`

// Stage returns one of the three stages, which constructor builds.
func Stage(name, summary string, constructor func(*sdk.Env) (http.Handler, error)) sdk.Stage {
	return sdk.Stage{
		Name:         name,
		Version:      kubeversion.Release(),
		Summary:      summary,
		ConfigSchema: noConfig,
		Validate:     validate,
		New: func(env *sdk.Env) (http.Handler, error) {
			if err := env.Config(&struct{}{}); err != nil {
				return nil, err
			}
			return constructor(env)
		},
	}
}

// validate finds keys in the configuration, and flags that no API server has. What
// flags mean together is checked by the host, for all stages at once.
func validate(config []byte, flags []string) []sdk.ConfigProblem {
	var problems []sdk.ConfigProblem
	if err := sdk.DecodeConfig(config, &struct{}{}); err != nil {
		problems = append(problems, sdk.ConfigProblem{Message: err.Error()})
	}
	if _, err := parse(flags); err != nil {
		problems = append(problems, sdk.ConfigProblem{Message: err.Error()})
	}
	return problems
}
