package server

import (
	"context"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/front"
)

const (
	// freshChecks is for how long the results of the health checks do for a status, and checksTimeout how long one waits for them.
	freshChecks   = 2 * time.Second
	checksTimeout = time.Second
)

// checkResults are the latest results of the health checks.
type checkResults struct {
	front *front.Frontend

	mu      sync.Mutex
	at      time.Time
	results []admin.Check
}

// get runs the checks unless that was done a moment ago.
func (c *checkResults) get() []admin.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < freshChecks {
		return c.results
	}
	ctx, cancel := context.WithTimeout(context.Background(), checksTimeout)
	defer cancel()
	found := c.front.CheckHealth(ctx)
	c.results, c.at = make([]admin.Check, len(found)), time.Now()
	for i, r := range found {
		c.results[i] = admin.Check{Name: r.Name, Endpoints: r.Endpoints, Required: r.Required}
		if r.Err != nil {
			c.results[i].Failure = r.Err.Error()
		}
	}
	return c.results
}
