package kube

import (
	"net/http"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// Stage returns one of the three stages, which constructor builds.
func Stage(name, summary string, release func() sdk.Kubernetes, constructor func(*sdk.Env) (http.Handler, error)) sdk.Stage {
	return sdk.Stage{
		RestOnOneProcessor: true,
		Name:               name,
		Version:            kubeversion.Release(),
		Summary:            summary,
		Config:             struct{}{}, // they are configured by the API server's flags alone
		Validate:           validate,
		Needs: &sdk.Needs{
			Claims: []sdk.Claim{sdk.Prefix("/")}, SystemRequests: true, Store: sdk.StoreRegistry, Flags: []string{"*"},
			Keys: true, Network: true,
		},
		Kubernetes: release,
		New:        constructor,
	}
}

// validate finds flags that no API server has. What flags mean together is checked by
// the host, for all stages at once.
func validate(_ []byte, flags []string) []sdk.ConfigProblem {
	if _, err := parse(flags); err != nil {
		return []sdk.ConfigProblem{{Message: err.Error()}}
	}
	return nil
}
