package relay

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// watches are those of clients that stages are serving, by the ids of their requests.
type watches struct {
	// lasting ends for those that there are when no other process is to go on with them.
	lasting atomic.Pointer[lasting]

	mu sync.Mutex
	m  map[uint64]openWatch
	// asking are how many watches each stage is asked to go on with at the same time.
	asking map[string]*semaphore.Weighted
}

type openWatch struct {
	r     *http.Request
	stage string
	// resumable reports whether another process can go on with it.
	resumable bool
	conn      *h1.Conn
	// canary and round are those of the snapshot by which the watch went.
	canary bool
	round  int
}

// moved reports whether a watch that began now would be on the other side.
func (o openWatch) moved(s *snapshot) bool {
	return s.canary != nil && s.side(o.r).isCanary != (o.canary && o.round == s.round)
}

// lasting is how long other processes may go on with a watch.
type lasting struct {
	context.Context
	end context.CancelFunc
}

func newLasting() *lasting {
	ctx, end := context.WithCancel(context.Background())
	return &lasting{ctx, end}
}

// EndWatches has the watches that there are end with the processes that serve them. It is called before the server, and
// not only a process, drains, and when the revisions that clients know mean something else.
func (c *Chain) EndWatches() { c.watches.lasting.Swap(newLasting()).end() }

// addWatch adds a watch that begins. The sides may have changed on its way.
func (c *Chain) addWatch(id uint64, o openWatch) {
	w := &c.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = map[uint64]openWatch{}
	}
	w.m[id] = o
	if o.moved(c.state.Load()) {
		o.conn.CutOff()
	}
}

// legsAtOnce is how many watches a stage is asked to go on with at the same time: when a process ends, all of its
// watches do, and other requests are not to wait for them.
const legsAtOnce = 32

// ask returns what a watch takes to ask a stage to go on with it.
func (w *watches) ask(stage string) *semaphore.Weighted {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking == nil {
		w.asking = map[string]*semaphore.Weighted{}
	}
	if w.asking[stage] == nil {
		w.asking[stage] = semaphore.NewWeighted(legsAtOnce)
	}
	return w.asking[stage]
}

func (w *watches) remove(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.m, id)
}

// addTo adds the watches of clients to the loads of stages.
func (w *watches) addTo(loads []Load, isOwn func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.m {
		i := slices.IndexFunc(loads, func(l Load) bool { return l.Stage == o.stage })
		if i < 0 || isOwn(o.r) {
			continue
		}
		loads[i].Watches++
		if o.resumable {
			loads[i].Resumable++
		}
	}
}

// cutMoved cuts a watch off if it has moved, and is not over: its connection is of another request then.
func (w *watches) cutMoved(id uint64, s *snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o, ok := w.m[id]; ok && o.moved(s) {
		o.conn.CutOff()
	}
}

// endMoved ends the legs of the watches whose side has changed with the share, one after the other, for as long as that
// lasts, or until Close.
func (c *Chain) endMoved(share float64, spread time.Duration) {
	s := c.state.Load()
	var moved []uint64
	c.watches.mu.Lock()
	for id, o := range c.watches.m {
		if o.moved(s) {
			moved = append(moved, id)
		}
	}
	c.watches.mu.Unlock()
	for _, id := range moved {
		select {
		case <-time.After(spread / time.Duration(len(moved)+1)):
		case <-c.ended.Done():
			return
		}
		now := c.state.Load()
		if now.share != share || now.round != s.round {
			return
		}
		c.watches.cutMoved(id, now)
	}
}
