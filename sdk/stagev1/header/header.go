// Package header has the headers of the data plane, which only host and stages exchange.
// It imports only the standard library, so that the relay does not depend on gRPC.
package header

// Prefix begins every header that only host and stages exchange. The host
// drops such headers from clients' requests and from stages' responses.
const Prefix = "X-Catena-"

// Headers of a request from the host to a stage.
const (
	// User is the authenticated user as a JSON object with the members
	// name, uid, groups and extra, all characters beyond ASCII escaped.
	User = "X-Catena-User"
	// RequestInfo is what the request asks for, as kube-apiserver reads it: a JSON object with the members verb, and of
	// requests for objects also apiGroup, apiVersion, namespace, resource, subresource and name, without those that are
	// empty, all characters beyond ASCII escaped. It is absent if they have more than 4 KiB.
	RequestInfo = "X-Catena-Request-Info"
	// Request is the id of the request while it is in flight. A stage sends
	// it back to the host to pass on a changed request (see Next).
	Request = "X-Catena-Request"
	// Timeout is the time left for the request in whole milliseconds.
	// A request without it has no deadline.
	Timeout = "X-Catena-Timeout"
	// Received is when the host received the request, in microseconds
	// since the Unix epoch.
	Received = "X-Catena-Received"
	// Client is the address of the client as HOST:PORT, as a server without stages would see it; that of the host itself for
	// what it, or a stage, asks for.
	Client = "X-Catena-Client"
	// Added lists headers that the host has added, and the client has not sent: a stage that proxies the request to
	// another server leaves them out.
	Added = "X-Catena-Added"
	// Duplex, with any value, means that the client may go on with the body of the request when the response has begun,
	// as over HTTP/2, and that neither may wait for the end of the other.
	Duplex = "X-Catena-Duplex"
	// Watch, with any value, is in a request for a watch that the host can go on with in another process of the stage. What the
	// stage says to that is [WatchResumable] in the head of the response, and [WatchDraining] in its trailer.
	Watch = "X-Catena-Watch"
	// AuditLevel is the audit level of the request (Metadata, Request or
	// RequestResponse), followed by ";omitManagedFields" where the policy says
	// so. It is absent if the request is not audited.
	AuditLevel = "X-Catena-Audit-Level"
)

// Values of Watch in a response.
const (
	// WatchResumable promises that the events are Kubernetes' own, of objects in the server's etcd, in its order, so another
	// process of the stage can go on after the resourceVersion of each of them.
	WatchResumable = "resumable"
	// WatchGzip is WatchResumable, and leaves it to the host to compress the events, which the client accepts.
	WatchGzip = "resumable; gzip"
	// WatchBookmarks announces bookmarks for the host, and promises nothing else.
	WatchBookmarks = "bookmarks"
	// WatchDraining is sent when such a watch has ended because the stage gets no new requests, and for no other
	// reason.
	WatchDraining = "draining"
)

// Headers of a response from a stage to the host.
const (
	// Decline, with any value, means that the request is not for the stage: the host
	// discards the response and sends the request to the next stage. The stage must not
	// have read the body.
	Decline = "X-Catena-Decline"
	// Undelivered comes from the host itself on connections that no process of the
	// stage has accepted: the request has not been executed. Its value is a secret of the
	// host; with any other it means nothing.
	Undelivered = "X-Catena-Undelivered"
	// Raw, with any value, is of a response to a request to upgrade that the stage passes on as another server has sent it. The
	// client gets it without the headers of the host's filters, and its connection closes.
	Raw = "X-Catena-Raw"
	// Audit is what the stage adds to the audit event: a JSON object with
	// the members annotations (strings), objectRef, requestObject, responseObject
	// (any JSON) and responseStatus, all characters beyond ASCII escaped.
	Audit = "X-Catena-Audit"
	// Latency lists the time spent, as NAME=NANOSECONDS separated by
	// commas. The names are those of kube-apiserver's
	// apiserver.latency.k8s.io/NAME audit annotations. In a request, it is how long that has
	// waited for priority and fairness.
	Latency = "X-Catena-Latency"
	// Initializing, with any value, means that a watch goes on to send its initial events after
	// its response has begun: it occupies its seats of priority and fairness until the stage sends
	// Initialized. A watch without it gives them back when its response begins.
	Initializing = "X-Catena-Initializing"
)

// Headers of a request from a stage to the host, on the host's socket.
const (
	// Next is the value of Request of a request that the host has
	// sent to this stage and that is still in flight: the host sends the request
	// that carries it to the stages downstream, with the identity, the audit
	// id and the deadline of the original.
	Next = "X-Catena-Next"
	// Delegate names a stage downstream, which then gets the
	// request, whatever it claims, with the calling stage's own identity. The request that
	// this stage gets has it too: it is for the stage alone, and not for the chain.
	Delegate = "X-Catena-Delegate"
	// Cause, on a request that the stage makes in its own name, is the value of Request of the one that it serves by that. Without it
	// the host cannot tell that a request comes back to the stage that has made it.
	Cause = "X-Catena-Cause"
	// Initialized is the value of Request of a watch whose response has had Initializing: it
	// has sent its initial events. The request has no other meaning, and the response is 204.
	Initialized = "X-Catena-Initialized"
	// AuditPart is the value of Request of a request that is still in flight and that the stage serves. The body is a
	// JSON object as in Audit, of any characters, which is too large for the head of the response. The stage sends it
	// before its response begins; the response is 204. Only stages that are granted keys, or the store's registry, may
	// do that.
	AuditPart = "X-Catena-Audit-Part"
	// Lead is a name. The response begins when the process that has made the request is the only one of its stage, on
	// all hosts that share a store, with a request of that name whose response has begun. It goes on for as long as
	// that is so: at its end, the process has to stop what it does as the leader. Another one can lead when the request
	// has ended.
	Lead = "X-Catena-Lead"
)
