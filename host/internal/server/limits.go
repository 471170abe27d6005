package server

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
	r.log.Warn("requests fail because the stage has come to a limit of the host", args...)
}
