package stagecheck

import "context"

// check is one promise of the protocol.
type check struct {
	name    string
	summary string
	section string // anchor in docs/protocol.md
	run     func(context.Context, *suite) error
	// patient: it takes its time by design.
	patient bool
}

// Sections of docs/protocol.md.
const (
	launchSection    = "1-launch"
	handshakeSection = "2-handshake"
	outputSection    = "3-output"
	rpcSection       = "4-rpcs"
	reportSection    = "what-a-stage-reports"
	dataSection      = "5-data-socket"
	responseSection  = "headers-of-a-response"
	declineSection   = "decline"
	callsSection     = "6-calls-to-the-host"
	endSection       = "7-the-end"
	librarySection   = "10-defaults-of-libraries"
	resourceSection  = "9-conformance"
)

// checks are all checks, in the order in which they are made.
func checks() []check {
	return []check{
		{"handshake", "launch, handshake, control socket and Describe", handshakeSection, checkHandshake, false},
		{"by-hand", "started by hand, it prints that and exits", launchSection, checkByHand, false},
		{"describe", "Describe returns the same twice", rpcSection, checkDescribe, false},
		{"control", "the control socket takes no client but the host", handshakeSection, checkControl, false},
		{"message-size", "a message of 16 MiB is taken", rpcSection, checkMessageSize, false},
		{"config", "a configuration that makes no sense is refused with a reason", rpcSection, checkConfig, false},
		{"prepare", "Configure and PrepareRun succeed, and the data socket is served", rpcSection, checkPrepare, false},
		{"claims", "claims, hooks and health checks are well formed", reportSection, checkClaims, false},
		{"watch", "Watch begins with the present state", rpcSection, checkWatch, false},
		{"once", "Configure and PrepareRun are refused a second time", rpcSection, checkOnce, false},
		{"calls", "calls are served while others last", librarySection, checkCalls, false},
		{"optional", "methods that are not implemented are Unimplemented", rpcSection, checkOptional, false},
		{"metrics", "metrics are those of Prometheus' text format", rpcSection, checkMetrics, false},
		{"standby", "a standby accepts nothing before Activate", rpcSection, checkStandby, false},
		{"requests", "ordinary requests get well-formed responses", dataSection, checkRequests, false},
		{"peers", "connections of other processes are closed", dataSection, checkPeers, false},
		{"large-head", "a request head of almost 4 MiB is taken", dataSection, checkLargeHead, false},
		{"expect", "a body that has to be asked for", dataSection, checkExpect, false},
		{"large-body", "a body of 16 MiB arrives, or is turned down properly", dataSection, checkLargeBody, false},
		{"decline", "what is declined reaches the next stage with its body", declineSection, checkDecline, false},
		{"unread", "a body that is left unread is not taken for a request", dataSection, checkUnread, false},
		{"encoded-path", "a path is the same with a character encoded", reportSection, checkEncodedPath, false},
		{"odd-paths", "a path such as /a/../b is not taken for another", dataSection, checkOddPaths, false},
		{"echo", "bodies of all sizes and framings come back unchanged", dataSection, checkEcho, false},
		{"streaming", "what is written arrives before the response ends", dataSection, checkStreaming, false},
		{"trailers", "trailers of the request are seen, trailers of the response are sent", dataSection, checkTrailers, false},
		{"upgrade", "an upgraded connection carries bytes both ways", dataSection, checkUpgrade, false},
		{"slow-reader", "a client that reads slowly gets everything and delays no other", dataSection, checkSlowReader, false},
		{"concurrency", "unfinished requests do not hold others up", dataSection, checkConcurrency, false},
		{"cancellation", "requests whose clients go away leave nothing running", dataSection, checkCancellation, false},
		{"through", "a request is passed on by a call", callsSection, checkThrough, false},
		{"through-request", "the next stage gets the request as it came", callsSection, checkThroughRequest, false},
		{"through-response", "the client gets the next stage's response as it came", callsSection, checkThroughResponse, false},
		{"through-trailers", "trailers are passed on, both ways", callsSection, checkThroughTrailers, false},
		{"through-stream", "what is written arrives before the response ends, and ends with its client", callsSection,
			checkThroughStream, false},
		{"through-break", "a response that breaks off does so for the client", callsSection, checkThroughBreak, false},
		{"through-upgrade", "an upgraded connection is passed on, both ways", callsSection, checkThroughUpgrade, false},
		{"hooks", "post-start hooks run to their end", rpcSection, checkPostStart, false},
		{"health", "health checks respond in time", rpcSection, checkHealth, false},
		{"memory", "memory and descriptors stay level over many requests", resourceSection, checkMemory, true},
		{"audit", "what it adds to audit events and latencies is well formed", responseSection, checkAudit, false},
		{"idle", "an idle connection stays open", dataSection, checkIdle, true},
		{"signals", "SIGINT, SIGTERM and SIGHUP do not end it", endSection, checkSignals, false},
		{"children", "what it starts stays in its process group", endSection, checkChildren, false},
		{"logging", "its log is understood and no flood", outputSection, checkLogging, false},
		{"pre-shutdown", "pre-shutdown hooks run while it serves", rpcSection, checkPreShutdown, false},
		{"drain", "Drain ends long-running requests and nothing else", rpcSection, checkDrain, false},
		{"stop", "Stop and Shutdown end it with status 0", endSection, checkStop, false},
		{"host-death", "it exits when the host has ended", endSection, checkHostDeath, false},
	}
}

// Names lists the checks.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}
