package datadir

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/sdk/claim"
)

// Claims keeps the claims of the stages in the data directory, for "catena chain" and for a later start on which a
// stage that is not required does not come up. A goroutine of its own writes them, once in bounds.ClaimsPause; of
// states that come faster, the latest counts.
type Claims struct {
	dataDir string
	log     hclog.Logger
	changed chan struct{} // holds one token if the file is to be written
	closing chan struct{}
	closed  chan struct{}

	mu  sync.Mutex
	all map[string][]claim.Claim
}

// OpenClaims returns what keeps the claims of this run, until Close. It begins with those of the last one.
func OpenClaims(dataDir string, log hclog.Logger) *Claims {
	f := &Claims{
		dataDir: dataDir, log: log,
		changed: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{}),
	}
	f.all = ReadClaims(dataDir)
	go panics.Contain(f.run, func(err error) { log.Error("claims are not written to the data directory any more", "error", err) })()
	return f
}

// Of returns the claims of a stage that are to be in the file.
func (f *Claims) Of(stage string) []claim.Claim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[stage]
}

// Save returns before the claims are in the file.
func (f *Claims) Save(all map[string][]claim.Claim) {
	f.mu.Lock()
	same := maps.EqualFunc(all, f.all, slices.Equal)
	f.all = all
	f.mu.Unlock()
	if same {
		return
	}
	select {
	case f.changed <- struct{}{}:
	default: // the write that is due takes these
	}
}

// Close returns when the file has the latest claims.
func (f *Claims) Close() error {
	close(f.closing)
	<-f.closed
	return nil
}

func (f *Claims) run() {
	defer close(f.closed)
	for {
		select {
		case <-f.changed:
			f.write()
			select {
			case <-time.After(bounds.ClaimsPause):
			case <-f.closing:
			}
		case <-f.closing:
			select {
			case <-f.changed:
				f.write()
			default:
			}
			return
		}
	}
}

func (f *Claims) write() {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	if err := WriteClaims(f.dataDir, all); err != nil {
		f.log.Warn("claims could not be saved for \"catena chain\"", "error", err)
	}
}
