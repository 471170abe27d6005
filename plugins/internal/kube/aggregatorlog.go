package kube

import (
	"errors"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/catena-dev/catena/sdk"
)

// logDiscovery logs whether the discovery of a stage is current, when that has changed.
func logDiscovery(env *sdk.Env, d *delegates.Discovery, err error) {
	log := env.Log.With("delegate", d.Delegate.Name)
	known := false
	select {
	case <-d.Synced():
		known = true
	default: // it starts: until it responds, the server is not complete
	}
	switch {
	case err == nil:
		log.Debug("discovery of a stage is current")
	case errors.Is(err, delegates.ErrMalformed):
		log.Warn("discovery of a stage is malformed, and stale until it is valid", "error", err)
	case known:
		log.Warn("discovery of a stage is stale", "error", err)
	default:
		log.Debug("discovery of a stage is not known yet", "error", err)
	}
}

// warnUndiscovered logs which group versions of a stage get an APIService all the same,
// while no client can find out what is in them.
func warnUndiscovered(env *sdk.Env, delegate sdk.Delegate) {
	var paths []string
	for _, path := range delegate.ListedPaths {
		if _, ok := groupVersion(path); ok {
			paths = append(paths, path)
		}
	}
	if len(paths) > 0 {
		env.Log.Warn("a stage lists API groups, and not /apis: they are not in discovery", "delegate", delegate.Name, "paths", paths)
	}
}

// warnMissing logs which stages the server begins without.
func (a *aggregator) warnMissing() {
	for _, d := range a.discoveries {
		select {
		case <-d.Synced():
		default:
			a.env.Log.Warn("an optional stage has sent no discovery document: its groups are empty until it does",
				"delegate", d.Delegate.Name)
		}
	}
}
