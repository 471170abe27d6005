package server

import "github.com/catena-dev/catena/host/internal/relay"

// limited counts a request that has failed because its stage has come to a limit of the host,
// and logs that now and then.
func (r *routing) limited(stage, limit, reason string) {
	r.front.Metrics().ObserveLimit(stage, limit)
	if !r.limits.Due(stage + " " + limit) {
		return
	}
	args := []any{"stage", stage, "limit", limit}
	if reason != "" {
		args = append(args, "reason", reason)
	}
	if limit == relay.LimitStray {
		r.log.Warn("a stage sends more than a response; it may take bodies for requests: catena stage check finds that", args[:2]...)
		return
	}
	r.log.Warn("requests fail because the stage has come to a limit of the host", args...)
}
