package server

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// storeMonitor tells of what is wrong with the store, and swaps the stages when it has been restored.
type storeMonitor struct {
	storage store.Options
	log     hclog.Logger
	journal *journal
	relay   *relay.Chain
	stages  *supervisor.Supervisor
	// background runs what takes long.
	background func(context.Context, func(context.Context))
}

// run logs what keeps requests that need etcd from being served, until ctx ends.
func (s *storeMonitor) run(ctx context.Context) {
	log := s.log.Named("store")
	say := func(kind, text string, bad bool) { s.journal.add(admin.Event{Kind: kind, Text: text, Bad: bad}) }
	m := store.Monitor{
		Silent: func(err error) {
			s.journal.faults.StoreSilent(err)
			log.Warn("etcd does not respond: requests that need it wait or fail until it does", "error", err)
			say(faults.StoreSilent, "etcd does not respond"+because(err.Error()), true)
		},
		Responds: func(after time.Duration) {
			s.journal.faults.StoreSilent(nil)
			log.Info("etcd responds again", "after", after.Round(time.Millisecond))
			say("etcd-responds", "etcd responds again", false)
		},
		Size: func(used, quota int64) {
			if s.journal.faults.StoreSize(used, quota) {
				log.Warn("etcd is nearly full: delete objects, or raise the quota", "bytes", used, "quotaBytes", quota)
				say(faults.StoreNearlyFull, "etcd is nearly full", true)
			}
		},
		Full: func() {
			hint := "delete objects"
			if len(s.storage.Endpoints) > 0 {
				hint = "compact and defragment it, then disarm the alarm (etcdctl)"
			}
			s.journal.faults.StoreFull(true, hint)
			log.Error("etcd has reached its quota and refuses writes: "+hint, "quotaBytes", s.storage.QuotaBytes)
			say(faults.StoreFull, "etcd has reached its quota and refuses writes", true)
		},
		Writable: func(after time.Duration) {
			s.journal.faults.StoreFull(false, "")
			log.Info("etcd accepts writes again", "after", after.Round(time.Millisecond))
			say("etcd-writable", "etcd accepts writes again", false)
		},
		Restored: func(was, is int64) {
			log.Warn("etcd has been restored from a backup: the stages are swapped, since they know what it does not have any more", "revision", is, "before", was)
			s.relay.EndWatches()
			s.background(ctx, s.swapAll)
		},
	}
	if err := m.Run(ctx, s.storage); err != nil && ctx.Err() == nil {
		log.Error("etcd is not monitored", "error", err)
	}
}

// swapRetry is the time after which a swap that another change prevents is tried again.
const swapRetry = time.Second

// swapAll replaces the processes of all stages that the host starts.
func (s *storeMonitor) swapAll(ctx context.Context) {
	s.stages.EndCanary("all stages are swapped, since what etcd has is not what they know")
	for _, spec := range s.stages.Specs() {
		if spec.Attach != "" {
			continue
		}
		for {
			_, err := s.stages.Swap(ctx, spec.Name, supervisor.SwapOptions{})
			if err == nil || ctx.Err() != nil {
				break
			}
			if !errors.Is(err, supervisor.ErrBusy) {
				s.log.Error("stage not swapped: what it knows of etcd is of before the restore, until catena swap succeeds",
					"stage", spec.Name, "error", err)
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(swapRetry):
			}
		}
	}
}
