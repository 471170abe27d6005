// Package idle makes a program that is idle cost little: it returns to the system the memory that it does not need, and
// runs on one processor.
//
// With several processors, Go wakes one more thread for each timer that fires, to look for work; in a program that does nothing but
// tick there is none to be found. With one, a server at rest uses a fifth less of the processors.
package idle

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/internal/gctune"
)

const (
	// interval is how long a program has to be idle.
	interval = 5 * time.Second
	// busy is the share of one processor from which on a program is not idle.
	busy = 0.05
	// burst is how many requests within burstTime end the rest of a program at once.
	burst     = 8
	burstTime = 100 * time.Millisecond
)

// Program is what this process does about being idle. The zero value is ready to use; a process has one.
type Program struct {
	// KeepProcessors leaves GOMAXPROCS alone.
	KeepProcessors bool

	resting atomic.Bool
	// began is when the first of the latest requests did, in nanoseconds since 1970, and requests is their number. Both count at rest only.
	began    atomic.Int64
	requests atomic.Int32

	mu sync.Mutex // held while the number of processors changes
	// decided is set when ownNumber is: the program has set GOMAXPROCS by itself.
	decided, ownNumber bool
}

// Run follows what the program uses, until ctx ends. When that was next to nothing for some seconds, the program
// returns memory (see [gctune.Release]), and runs on one processor until it has work again: a burst of requests,
// or anything that shows in what it uses in the next seconds. With GOMAXPROCS in its environment, or set
// by [runtime.GOMAXPROCS], it keeps its processors.
func (p *Program) Run(ctx context.Context) {
	defer p.work()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, at := processorTime(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		used, now := processorTime(), time.Now()
		if isIdle(used-last, now.Sub(at)) {
			gctune.Release()
			p.rest()
			used, now = processorTime(), time.Now() // the collection is no work
		} else {
			p.work()
		}
		last, at = used, now
	}
}

// isIdle reports whether a program has used next to nothing of the processors over a time.
func isIdle(used, over time.Duration) bool { return used.Seconds() < busy*over.Seconds() }

// Request says that a request has come. It may be called on nil, which does nothing.
func (p *Program) Request() {
	if p == nil || !p.resting.Load() {
		return
	}
	now := time.Now().UnixNano()
	if now-p.began.Load() > int64(burstTime) {
		p.began.Store(now)
		p.requests.Store(1)
		return
	}
	if p.requests.Add(1) == burst {
		go p.work() // it waits for a collection that is under way
	}
}

// rest leaves the program one processor.
func (p *Program) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.KeepProcessors {
		return
	}
	if !p.decided {
		p.decided, p.ownNumber = true, hasOwnNumber()
	}
	if p.ownNumber || p.resting.Load() || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	runtime.GOMAXPROCS(1)
	p.resting.Store(true)
}

// work gives the program back its processors.
func (p *Program) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resting.Load() {
		runtime.SetDefaultGOMAXPROCS()
		p.resting.Store(false)
	}
}

// hasOwnNumber reports whether the number of processors is not the one that Go takes by itself, and follows limits with.
func hasOwnNumber() bool {
	if os.Getenv("GOMAXPROCS") != "" {
		return true
	}
	number := runtime.GOMAXPROCS(0)
	runtime.SetDefaultGOMAXPROCS()
	if runtime.GOMAXPROCS(0) == number {
		return false
	}
	runtime.GOMAXPROCS(number)
	return true
}
