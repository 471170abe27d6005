package server

import (
	"sync/atomic"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/relay"
)

// live is the configuration that is in effect.
type live struct{ current atomic.Pointer[config.Config] }

func newLive(cfg *config.Config) *live {
	l := new(live)
	l.current.Store(cfg)
	return l
}

func (l *live) config() *config.Config { return l.current.Load() }

// watchMode is what becomes of the watches of a stage.
func (l *live) watchMode(stage string) relay.WatchMode {
	return watchModes[l.config().Stages[stage].Watches]
}

// watchModes are by their names in the configuration.
var watchModes = map[string]relay.WatchMode{
	"resume": relay.ResumeWatches, "verify": relay.VerifyWatches, "passthrough": relay.PassThroughWatches,
}
