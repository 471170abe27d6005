// Package idle makes a program that is idle cost little: it returns to the system the memory that it does not need, and
// runs on one processor.
//
// With several processors, Go wakes one more thread for each timer that fires, to look for work; in a program that does nothing but
// tick it finds no work. With one, a server at rest uses a fifth less of the processors.
package idle

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/catena-dev/catena/internal/gctune"
)

const (
	// interval is how long a program has to be idle.
	interval = 5 * time.Second
	// busy is the share of one processor from which on a program is not idle.
	busy = 0.05
	// quantum is what a program at rest may use of the processors within quantumTime: more is work, which ends the rest
	// at once.
	quantum     = 10 * time.Millisecond
	quantumTime = 100 * time.Millisecond
)

// Program is what this process does about being idle. A process has one.
type Program struct {
	// OneProcessor has the process rest on one processor.
	OneProcessor bool

	// signals is signalUse, but in tests.
	signals func(chan<- os.Signal) (stop func())

	resting bool
	// own is the number of processors that the program has set by itself, 0 if it has not.
	own int
	// spent gets a signal for each quantum that is used at rest, until stop is called. The last one was at lastSpent.
	spent     chan os.Signal
	stop      func()
	lastSpent time.Time
}

// Run follows what the program uses, until ctx ends. When that was next to nothing for some seconds, the program
// returns memory (see [gctune.Release]), and rests: it runs on one processor until it has work again. That is so after
// some 20 ms of processor time without a pause, whatever the work is, on Linux; elsewhere, and
// if it comes in small pieces, when it shows in what the program uses in five seconds.
//
// With GOMAXPROCS in its environment, or set by [runtime.GOMAXPROCS] to more than one, the program keeps its
// processors.
func (p *Program) Run(ctx context.Context) {
	if p.signals == nil {
		p.signals = signalUse
	}
	p.spent = make(chan os.Signal, 1)
	defer p.work()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, at := processorTime(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.spent:
			p.spentQuantum(time.Now())
			continue
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

// rest leaves the program one processor.
func (p *Program) rest() {
	number := runtime.GOMAXPROCS(0)
	if number > 1 {
		p.work() // the program has set it while it rested
	}
	if !p.OneProcessor || p.resting || number == 1 || p.hasOwn(number) {
		return
	}
	runtime.GOMAXPROCS(1)
	p.resting, p.lastSpent = true, time.Now()
	p.stop = p.signals(p.spent)
}

// spentQuantum ends the rest of a program that works.
func (p *Program) spentQuantum(now time.Time) {
	if now.Sub(p.lastSpent) <= quantumTime {
		p.work()
	}
	p.lastSpent = now
}

// work gives the program back its processors, unless it has set their number meanwhile.
func (p *Program) work() {
	if !p.resting {
		return
	}
	p.stop()
	p.resting = false
	if runtime.GOMAXPROCS(0) == 1 {
		runtime.SetDefaultGOMAXPROCS()
	}
}

// hasOwn reports whether the number of processors is not the one that Go takes by itself, and follows limits with.
func (p *Program) hasOwn(number int) bool {
	if os.Getenv("GOMAXPROCS") != "" || number == p.own {
		return true
	}
	p.own = 0
	runtime.SetDefaultGOMAXPROCS()
	if runtime.GOMAXPROCS(0) == number {
		return false
	}
	p.own = number
	runtime.GOMAXPROCS(number)
	return true
}
