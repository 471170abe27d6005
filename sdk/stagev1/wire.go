// Package stagev1 is the protocol between the Catena host and a stage: the gRPC
// service of the control plane (stage.proto), the handshake of go-plugin and the
// headers of the data plane. docs/protocol.md tells the whole story.
package stagev1

// The handshake of hashicorp/go-plugin. The cookie keeps people from starting a
// stage by hand; it protects nothing.
const (
	ProtocolVersion  = 1
	MagicCookieKey   = "CATENA_STAGE_COOKIE"
	MagicCookieValue = "a7c1f5e2-catena-stage"
	// PluginName is the name under which go-plugin dispenses the service Stage.
	PluginName = "stage"
)

// Environment variables that the host sets for a stage process, besides
// go-plugin's own.
const (
	// EnvListener is the descriptor of the inherited listening Unix socket on which
	// the stage serves HTTP/1.1. The host owns its path.
	EnvListener = "CATENA_STAGE_LISTENER_FD"
	// EnvParent is the descriptor of an inherited pipe that the host holds open: end of
	// file means that the host is gone and that the stage has to exit.
	EnvParent = "CATENA_STAGE_PARENT_FD"
	// EnvLogLevel is the least level of what the stage is to log: trace, debug,
	// info, warn or error. It is info if the variable is absent.
	EnvLogLevel = "CATENA_STAGE_LOG_LEVEL"
)

// HeaderPrefix begins every header that only host and stages exchange. The host
// drops such headers from clients' requests and from stages' answers.
const HeaderPrefix = "X-Catena-"

// Headers of a request from the host to a stage.
const (
	// HeaderUser is the authenticated user as a JSON object with the members
	// name, uid, groups and extra, all characters beyond ASCII escaped.
	HeaderUser = "X-Catena-User"
	// HeaderRequest is the id of the request while it is in flight. A stage sends
	// it back to the host to hand on a changed request (see HeaderNext).
	HeaderRequest = "X-Catena-Request"
	// HeaderTimeout is the time left for the request in whole milliseconds.
	// A request without it has no deadline.
	HeaderTimeout = "X-Catena-Timeout"
	// HeaderReceived is when the host received the request, in microseconds
	// since the Unix epoch.
	HeaderReceived = "X-Catena-Received"
	// HeaderAuditLevel is the audit level of the request (Metadata, Request or
	// RequestResponse), followed by ";omitManagedFields" where the policy says
	// so. It is absent if the request is not audited.
	HeaderAuditLevel = "X-Catena-Audit-Level"
)

// Headers of an answer from a stage to the host.
const (
	// HeaderDecline, with any value, says "not mine": the host discards the
	// answer and asks the next stage. The stage must not have read the body.
	HeaderDecline = "X-Catena-Decline"
	// HeaderUndelivered comes from the host itself on connections that no process of the
	// stage has accepted: the request has not been executed. Its value is a secret of the
	// host; with any other it means nothing.
	HeaderUndelivered = "X-Catena-Undelivered"
	// HeaderAudit is what the stage adds to the audit event: a JSON object with
	// the members annotations (strings), objectRef, requestObject, responseObject
	// (any JSON) and responseStatus, all characters beyond ASCII escaped.
	HeaderAudit = "X-Catena-Audit"
	// HeaderLatency lists the time spent, as NAME=NANOSECONDS separated by
	// commas. The names are those of kube-apiserver's
	// apiserver.latency.k8s.io/NAME audit annotations.
	HeaderLatency = "X-Catena-Latency"
)

// Headers of a request from a stage to the host, on the host's socket.
const (
	// HeaderNext is the value of HeaderRequest of a request that the host has
	// sent to this stage and that is still in flight: the host hands the request
	// that carries it to the stages behind this one, with the identity, the audit
	// id and the deadline of the original.
	HeaderNext = "X-Catena-Next"
	// HeaderDelegate names a stage behind this one, which then gets the
	// request, whatever it claims, with the calling stage's own identity.
	HeaderDelegate = "X-Catena-Delegate"
)
