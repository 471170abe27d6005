package lifecycle

import "context"

// Check is a health check of a stage, or of the server itself.
type Check struct {
	// Name is the name under which the endpoints list the check: STAGE/CHECK if it is
	// a stage's.
	Name string
	// Healthz, Livez and Readyz are the endpoints that the check is part of.
	Healthz, Livez, Readyz bool
	// Boot reports that the check fails while its stage starts: /livez ignores that
	// for livez-grace-period.
	Boot bool
	// Required reports that an endpoint fails if the check does. If not, the endpoint
	// only lists the failure.
	Required bool
	// OfServer reports that clients may ask for the check by its name without that of the stage, as they ask kube-apiserver.
	OfServer bool
	// ServerCheck is the name under which the host shows the check for the whole server,
	// together with those of other stages; empty if it does not.
	ServerCheck string
	// Group names checks that clients exclude together; empty if the check is in none.
	Group string
	// Run returns nil if the check passes. It returns within a bounded time: an
	// endpoint responds when all of its checks have returned.
	Run func(context.Context) error
}
