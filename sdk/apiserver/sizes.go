package apiserver

import (
	"sync"
	"time"

	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/catena-dev/catena/sdk"
)

// reportDelay collects changes, since every resource reports on its own.
const reportDelay = 100 * time.Millisecond

// sizeReporter passes on what the storage layer learns about the number of
// objects: the host needs it for the cost of LIST requests.
type sizeReporter struct {
	flowcontrolrequest.StorageObjectCountTracker
	report func([]sdk.ResourceSize)

	lock    sync.Mutex
	pending map[string]sdk.ResourceSize
}

func newSizeReporter(tracker flowcontrolrequest.StorageObjectCountTracker, report func([]sdk.ResourceSize)) *sizeReporter {
	return &sizeReporter{StorageObjectCountTracker: tracker, report: report, pending: map[string]sdk.ResourceSize{}}
}

// Set is called for every resource about once a minute.
func (s *sizeReporter) Set(resource string, stats storage.Stats) {
	s.StorageObjectCountTracker.Set(resource, stats)
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.pending) == 0 {
		time.AfterFunc(reportDelay, s.flush)
	}
	s.pending[resource] = sdk.ResourceSize{
		Resource:    resource,
		Count:       stats.ObjectCount,
		ObjectBytes: stats.EstimatedAverageObjectSizeBytes,
	}
}

func (s *sizeReporter) flush() {
	s.lock.Lock()
	sizes := make([]sdk.ResourceSize, 0, len(s.pending))
	for _, size := range s.pending {
		sizes = append(sizes, size)
	}
	clear(s.pending)
	s.lock.Unlock()
	s.report(sizes)
}
