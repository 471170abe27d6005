package front

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/relay"
)

// The former names, until no other package uses them.

type Front = Frontend

type Check = lifecycle.Check

func (f *Frontend) Carrier() *Propagator { return f.Propagator() }

func (f *Frontend) MayDo(ctx context.Context, method, path, name string, groups []string) (Access, error) {
	return f.Authorize(ctx, method, path, name, groups)
}

var latest atomic.Pointer[Metrics]

func ObserveHop(stage string, outcome relay.Outcome) { latest.Load().ObserveHop(stage, outcome) }

func CountedHops() map[string]map[relay.Outcome]uint64 { return latest.Load().Hops() }

func SetSupervision(source Supervision) { latest.Load().SetSupervision(source) }

func ObserveStart(stage string, took time.Duration) { latest.Load().ObserveStart(stage, took) }

func ObserveSwap(stage, result string) { latest.Load().ObserveSwap(stage, result) }

func ObserveReload(result string, at time.Time) { latest.Load().ObserveReload(result, at) }

func ObserveConfig(at time.Time) { latest.Load().ObserveConfig(at) }
