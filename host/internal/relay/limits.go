package relay

import (
	"errors"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// The limits that Config.Limited names.
const (
	LimitHold  = "holdRequests"       // of the requests that wait for a stage
	LimitUser  = "holdRequestsOfUser" // of those of one user
	LimitHeads = "responseHeads"      // of the bytes of large heads of responses, of warnings and of trailers
	// LimitDelegates is of what a stage asks its delegates for.
	LimitDelegates = "delegateCalls"
	// LimitOwn is of what a stage asks the server for in its own name.
	LimitOwn = "ownCalls"
	// LimitLoop is one that the stage makes again to serve it.
	LimitLoop = "loop"
	// LimitStray is of one response to a request: the stage has sent more, perhaps to a body that it took for a
	// request.
	LimitStray = "strayBytes"
)

// Package h1 imports nothing of the host: the list of bounds has the same figures.
var _ = [...]struct{}{
	[1]struct{}{}[bounds.ResponseHead-h1.MaxHead], [1]struct{}{}[bounds.HeadLine-h1.LineCost], [1]struct{}{}[bounds.HeadLines-h1.FreeLines],
	[1]struct{}{}[bounds.ResponseConnection-h1.MaxConnection],
}

// budgets are one for each stage, whichever of its processes has a request, and one for all.
type budgets struct {
	stage, all int64
	wait       time.Duration

	mu    sync.Mutex
	total *h1.Budget
	of    map[string]*h1.Budget
}

func (b *budgets) budget(stage string) *h1.Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.total, b.of = h1.NewBudget(b.all, b.wait, nil), map[string]*h1.Budget{}
	}
	if b.of[stage] == nil {
		b.of[stage] = h1.NewBudget(b.stage, b.wait, b.total)
	}
	return b.of[stage]
}

// endpoint returns one for the socket of a stage of the chain. The caller has to close it.
func (c *Chain) endpoint(stage, socket string) *endpoint {
	e := newEndpoint(stage, socket, *c.hold.Load())
	e.limited = c.config.Limited
	e.heads, e.chunks, e.user = c.heads.budget(stage), c.chunks.budget(stage), c.config.User
	if c.config.Dial != nil {
		e.dialer = c.config.Dial
	}
	return e
}

// limited reports an error that is a limit.
func (x *request) limited(err error) {
	if x.chain.config.Limited == nil {
		return
	}
	switch {
	case errors.Is(err, errFull):
		x.chain.config.Limited(x.stage, LimitHold, "")
	case errors.Is(err, errUserFull):
		x.chain.config.Limited(x.stage, LimitUser, "")
	case errors.Is(err, h1.ErrNoRoom):
		x.chain.config.Limited(x.stage, LimitHeads, "")
	}
}
