// Package front is the entry of the server: TLS and the filters of a Kubernetes API
// server, that is authentication, authorization, audit, priority
// and fairness, limits and timeouts, each of which a request passes once.
//
// It is k8s.io/apiserver's GenericAPIServer, configured by kube-apiserver's own
// flags, with no API group of its own: what is not /healthz, /livez, /readyz,
// /metrics, /version, /debug or the index goes to the chain of stages. The order
// of calls is ParseFlags, New (which binds the port), then SetChain and the
// methods that add hooks, checks and signals, then Run, which ends the start; Ready and
// Metrics belong to one Frontend, so that a process can have several.
package front
