// Package controllers is the stage controllers: kube-controller-manager's controllers, unmodified, as clients of the
// server whose chain the stage is part of. It serves nothing.
package controllers

import (
	"fmt"
	"net/http"

	"github.com/catena-dev/catena/internal/gctune/startgc"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// Config is the stage's own configuration.
type Config struct {
	Controllers []string       `json:"controllers" jsonschema:"controllers that run, by kube-controller-manager's names for them; * is all that run there without its flag controllers, and -NAME all but NAME"`
	Flags       map[string]any `json:"flags" jsonschema:"other flags of kube-controller-manager, by their names without dashes"`
}

// Stage returns the stage.
func Stage() sdk.Stage {
	return sdk.Stage{
		RestOnOneProcessor: true,
		Name:               "controllers",
		Version:            kubeversion.Release(),
		Summary:            "runs Kubernetes' controllers of namespaces, service accounts, garbage collection and workloads",
		Config:             Config{Controllers: withoutNodes()},
		Validate:           validate,
		Needs:              &sdk.Needs{Flags: serverFlags(), Keys: true},
		New:                newStage,
	}
}

// newStage prepares the controllers. They run when the server has been ready once, in the one process of all
// processes and hosts that holds the lease.
func newStage(env *sdk.Env) (http.Handler, error) {
	startgc.End()
	m, err := newManager(env)
	if err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	env.PostStartHook("start-controllers", m.start)
	env.PreShutdownHook("stop-controllers", m.stop)
	env.OnDestroy(m.destroy)
	return nil, nil
}
