package apiserver

import (
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// latencyTrackers are Kubernetes' trackers, all of them in one object.
type latencyTrackers struct {
	all                                                     request.LatencyTrackers
	mutating, authentication, storage, transform, serialize sumOfDurations
	write, decode, impersonation                            sumOfDurations
	validating, authorization, queue                        longestDuration
}

// start returns the trackers.
func (t *latencyTrackers) start() *request.LatencyTrackers {
	t.all = request.LatencyTrackers{
		MutatingWebhookTracker: &t.mutating, ValidatingWebhookTracker: &t.validating,
		AuthenticationTracker: &t.authentication, AuthorizationTracker: &t.authorization, ImpersonationTracker: &t.impersonation,
		APFQueueWaitTracker: &t.queue, StorageTracker: &t.storage, TransformTracker: &t.transform,
		SerializationTracker: &t.serialize, ResponseWriteTracker: &t.write, DecodeTracker: &t.decode,
	}
	return &t.all
}

// sumOfDurations tracks what follows one upon another.
type sumOfDurations struct{ nanoseconds atomic.Int64 }

func (d *sumOfDurations) Track(f func()) { track(d, f) }

func (d *sumOfDurations) TrackDuration(took time.Duration) { d.nanoseconds.Add(int64(took)) }

func (d *sumOfDurations) GetLatency() time.Duration { return time.Duration(d.nanoseconds.Load()) }

// longestDuration tracks what happens at the same time.
type longestDuration struct{ nanoseconds atomic.Int64 }

func (d *longestDuration) Track(f func()) { track(d, f) }

func (d *longestDuration) TrackDuration(took time.Duration) {
	for {
		longest := d.nanoseconds.Load()
		if int64(took) <= longest || d.nanoseconds.CompareAndSwap(longest, int64(took)) {
			return
		}
	}
}

func (d *longestDuration) GetLatency() time.Duration { return time.Duration(d.nanoseconds.Load()) }

func track(tracker request.DurationTracker, f func()) {
	began := time.Now()
	defer func() { tracker.TrackDuration(time.Since(began)) }()
	f()
}
