// Package stagev1 is the protocol between the Catena host and a stage: the gRPC
// service of the control plane (stage.proto), the handshake of go-plugin and the
// headers of the data plane. docs/protocol.md describes all of it.
package stagev1

import "github.com/catena-dev/catena/sdk/stagev1/header"

// The handshake of hashicorp/go-plugin. The cookie only shows that a host has started the
// stage; it protects nothing.
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

// The headers of the data plane, as package header has them.
const (
	HeaderPrefix       = header.Prefix
	HeaderUser         = header.User
	HeaderRequestInfo  = header.RequestInfo
	HeaderRequest      = header.Request
	HeaderTimeout      = header.Timeout
	HeaderReceived     = header.Received
	HeaderClient       = header.Client
	HeaderAdded        = header.Added
	HeaderDuplex       = header.Duplex
	HeaderWatch        = header.Watch
	HeaderAuditLevel   = header.AuditLevel
	HeaderDecline      = header.Decline
	HeaderUndelivered  = header.Undelivered
	HeaderRaw          = header.Raw
	HeaderAudit        = header.Audit
	HeaderLatency      = header.Latency
	HeaderInitializing = header.Initializing
	HeaderNext         = header.Next
	HeaderCause        = header.Cause
	HeaderDelegate     = header.Delegate
	HeaderInitialized  = header.Initialized
	HeaderAuditPart    = header.AuditPart
	HeaderLead         = header.Lead
)
