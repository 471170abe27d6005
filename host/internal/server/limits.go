package server

import (
	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
)

// limits counts what stages are refused, and logs that now and then.
type limits struct {
	metrics *front.Metrics
	log     hclog.Logger
	due     bounds.LogEvery
}

// limited tells of a request that has failed because its stage has come to a limit of the host.
func (l *limits) limited(stage, limit, reason string) {
	l.metrics.ObserveLimit(stage, limit)
	if !l.due.Due(stage + " " + limit) {
		return
	}
	args := []any{"stage", stage, "limit", limit}
	if reason != "" {
		args = append(args, "reason", reason)
	}
	if limit == relay.LimitStray {
		l.log.Warn("a stage sends more than a response; it may take bodies for requests: catena stage check finds that",
			"stage", stage)
		return
	}
	l.log.Warn("requests fail because the stage has come to a limit of the host", args...)
}

// connectionRefused tells of a connection of a stage that has come to a bound.
func (l *limits) connectionRefused(stage, bound string) {
	l.metrics.ObserveLimit(stage, bound)
	if l.due.Due(stage + " " + bound) {
		l.log.Warn("connections of a stage to the host are refused: it has come to a bound",
			"stage", stage, "bound", bound)
	}
}
