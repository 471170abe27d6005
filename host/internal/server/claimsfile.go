package server

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/sdk/claim"
)

// claimsFile keeps the claims of the stages in the data directory, for "catena chain" and
// for a later start on which a stage that is not required does not come up. A goroutine of
// its own writes them, once in bounds.ClaimsPause; of states that come faster, the latest counts.
type claimsFile struct {
	dataDir string
	log     hclog.Logger
	changed chan struct{} // holds one token if the file is to be written
	closing chan struct{}
	closed  chan struct{}

	mu  sync.Mutex
	all map[string][]claim.Claim
}

func newClaimsFile(dataDir string, log hclog.Logger) *claimsFile {
	f := &claimsFile{dataDir: dataDir, log: log, changed: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{})}
	f.all = datadir.ReadClaims(dataDir)
	go panics.Contain(f.run, func(err error) { log.Error("claims are not written to the data directory any more", "error", err) })()
	return f
}

// of returns the claims of a stage that are to be in the file.
func (f *claimsFile) of(stage string) []claim.Claim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[stage]
}

// save returns before the claims are in the file.
func (f *claimsFile) save(all map[string][]claim.Claim) {
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

// close returns when the file has the latest claims.
func (f *claimsFile) close() error {
	close(f.closing)
	<-f.closed
	return nil
}

func (f *claimsFile) run() {
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

func (f *claimsFile) write() {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	if err := datadir.WriteClaims(f.dataDir, all); err != nil {
		f.log.Warn("claims could not be saved for \"catena chain\"", "error", err)
	}
}
