package store

import (
	"sync"
	"time"
)

const (
	// historyAge is how far back a process of a stage has to know the changes of what it serves: clients are told a
	// position each minute, which is 30 s old then, and need some time to come back. Kubernetes compacts etcd after 300
	// s.
	historyAge = 150 * time.Second
	// historySample is how often the revision is noted.
	historySample = 15 * time.Second
	// historyChanges bounds the changes that a process has to read: some 2 s of its time.
	historyChanges = 50_000
)

// Revisions notes which revision the store had when. The zero value is ready to use.
type Revisions struct {
	mu      sync.Mutex
	samples []revisionSample // the oldest first
}

type revisionSample struct {
	at       time.Time
	revision int64
}

// note is told the present revision.
func (r *Revisions) note(now time.Time, revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.samples) - 1; last >= 0 {
		switch latest := r.samples[last]; {
		case revision < latest.revision: // a backup was restored
			r.samples = r.samples[:0]
		case now.Sub(latest.at) < historySample:
			return
		}
	}
	r.samples = append(r.samples, revisionSample{now, revision})
	for len(r.samples) > 1 && now.Sub(r.samples[1].at) >= historyAge {
		r.samples = r.samples[1:]
	}
}

// Past returns the revision of 150 seconds ago, or, if that is not known, the oldest one that is; but none with more
// than 50,000 changes since then. It is 0 if no revision is known.
func (r *Revisions) Past() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == 0 {
		return 0
	}
	return max(r.samples[0].revision, r.samples[len(r.samples)-1].revision-historyChanges)
}
