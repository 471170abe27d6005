package declared

import (
	"cmp"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// rollbackOf is what the configuration, which has been validated, says of going back after
// a swap; the zero value if there are no conditions.
func rollbackOf(st config.Stage) supervisor.Rollback {
	if st.Rollback == (config.Rollback{}) {
		return supervisor.Rollback{}
	}
	return supervisor.Rollback{ErrorRate: st.Rollback.ErrorRate, Health: st.Rollback.Health, Probation: st.Probation}
}

// DefaultRollback is what a swap of a stage goes back on that is asked for without conditions: health, and the end of
// the new process, within ten seconds unless probation is set. It is nothing if rollbackOn is set, were it to nothing.
func DefaultRollback(cfg *config.Config, stage string) supervisor.Rollback {
	switch key := "stages." + stage; {
	case cfg.IsSet(key + ".rollbackOn"):
		return supervisor.Rollback{}
	case cfg.IsSet(key + ".probation"):
		return supervisor.Rollback{Health: true, Probation: cfg.Stages[stage].Probation}
	}
	return supervisor.Rollback{Health: true, Probation: 10 * time.Second}
}

// MergeRollback completes what a swap was asked to go back on by the configuration of the
// stage: conditions alone get its probation, a probation alone gets its conditions. The
// zero value stays, unless it is for a canary: all of the configuration is in force then.
func MergeRollback(asked supervisor.Rollback, plan *canary.Plan, cfg *config.Config, stage string) supervisor.Rollback {
	configured, conditions := rollbackOf(cfg.Stages[stage]), asked.ErrorRate > 0 || asked.Health
	switch {
	case plan != nil && asked == (supervisor.Rollback{}) && plan.Limits == (canary.Limits{}):
		return configured
	case conditions && asked.Probation == 0:
		asked.Probation = cfg.Stages[stage].Probation
	case !conditions && asked.Probation > 0:
		if plan == nil { // a canary has conditions of its own
			configured = cmp.Or(configured, DefaultRollback(cfg, stage))
		}
		asked.ErrorRate, asked.Health = configured.ErrorRate, configured.Health
	}
	return asked
}
