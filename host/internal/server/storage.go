package server

import (
	"context"
	"errors"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// monitorStore logs what keeps requests that need etcd from being served, until ctx ends.
func (r *run) monitorStore(ctx context.Context) {
	log := r.logs.host.Named("store")
	say := func(kind, text string, bad bool) {
		r.history.add(admin.Event{Kind: kind, Text: text, Bad: bad})
		r.notifier.stagesChanged()
	}
	m := store.Monitor{
		Silent: func(err error) {
			r.faults.StoreSilent(err)
			log.Warn("etcd does not respond: requests that need it wait or fail until it does", "error", err)
			say(faults.StoreSilent, "etcd does not respond"+because(err.Error()), true)
		},
		Responds: func(after time.Duration) {
			r.faults.StoreSilent(nil)
			log.Info("etcd responds again", "after", after.Round(time.Millisecond))
			say("etcd-responds", "etcd responds again", false)
		},
		Size: func(used, quota int64) {
			if r.faults.StoreSize(used, quota) {
				log.Warn("etcd is nearly full: delete objects, or raise the quota", "bytes", used, "quotaBytes", quota)
				say(faults.StoreNearlyFull, "etcd is nearly full", true)
			}
		},
		Full: func() {
			hint := "delete objects"
			if len(r.storage.Endpoints) > 0 {
				hint = "compact and defragment it, then disarm the alarm (etcdctl)"
			}
			r.faults.StoreFull(true, hint)
			log.Error("etcd has reached its quota and refuses writes: "+hint, "quotaBytes", r.storage.QuotaBytes)
			say(faults.StoreFull, "etcd has reached its quota and refuses writes", true)
		},
		Writable: func(after time.Duration) {
			r.faults.StoreFull(false, "")
			log.Info("etcd accepts writes again", "after", after.Round(time.Millisecond))
			say("etcd-writable", "etcd accepts writes again", false)
		},
		Restored: func(was, is int64) {
			log.Warn("etcd has been restored from a backup: the stages are swapped, since they know what it does not have any more", "revision", is, "before", was)
			r.chain.relay.EndWatches()
			r.background(ctx, r.swapAll)
		},
	}
	if err := m.Run(ctx, r.storage); err != nil && ctx.Err() == nil {
		log.Error("etcd is not monitored", "error", err)
	}
}

// swapRetry is the time after which a swap that another change prevents is tried again.
const swapRetry = time.Second

// swapAll replaces the processes of all stages that the host starts.
func (r *run) swapAll(ctx context.Context) {
	r.stages.EndCanary("all stages are swapped, since what etcd has is not what they know")
	for _, spec := range r.stages.Specs() {
		if spec.Attach != "" {
			continue
		}
		for {
			_, err := r.stages.Swap(ctx, spec.Name, supervisor.SwapOptions{})
			if err == nil || ctx.Err() != nil {
				break
			}
			if !errors.Is(err, supervisor.ErrBusy) {
				r.logs.host.Error("stage not swapped: what it knows of etcd is of before the restore, until catena swap succeeds", "stage", spec.Name, "error", err)
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
