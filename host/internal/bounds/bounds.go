// Package bounds has what a stage, third-party code, can make the host hold or
// compute at most: the constants, and a list of them for people.
//
// It needs nothing but the standard library and package claim, so that every package of the host can use it.
package bounds

import (
	"time"

	"github.com/catena-dev/catena/sdk/claim"
)

// Messages that a stage sends on its control socket, in bytes. Package decode has the bounds of their fields.
const (
	// DescribeMessage bounds the response to Describe.
	DescribeMessage = 1 << 20
	// ProblemsMessage bounds the response to ValidateConfig.
	ProblemsMessage = 1 << 20
	// ReportMessage bounds the responses to Configure and PrepareRun, and an event of Watch.
	ReportMessage = 8 << 20
	// HealthMessage bounds the response to CheckHealth.
	HealthMessage = 8 << 20
	// PagePiece bounds a message of GetDebugPage, Page all of a page.
	PagePiece = 16 << 20
	Page      = 256 << 20
	// MetricsPiece bounds a message of GatherMetrics.
	MetricsPiece = 4 << 20
	// OtherMessage bounds every other message.
	OtherMessage = 64 << 10
	// CallHeaders bounds the headers and the trailers of a call, in which errors come.
	CallHeaders = 256 << 10
)

// Texts that a stage sends on its control socket, in bytes.
const (
	// Name bounds the name of a hook, a health check, a signal, a flag and the like.
	Name = 253
	// Line bounds a text of one line, such as a version or a path to list.
	Line = 1 << 10
	// Summary bounds the summary that a stage gives of itself.
	Summary = 4 << 10
	// Reason is where the reason of a failed health check, and a problem with a configuration, is cut.
	Reason = 4 << 10
	// Error is where the message of an error of a call is cut.
	Error = 16 << 10
	// FilePath bounds the path of a file that a stage needs.
	FilePath = 4 << 10
)

// What a stage describes and reports.
const (
	// ClaimPath and ClaimSegments bound the path of one claim.
	ClaimPath     = claim.MaxPath
	ClaimSegments = claim.MaxSegments
	// Claims bounds the claims of a stage, and Segments all of their segments.
	Claims   = 100_000
	Segments = 100_000
	// Patterns bounds those of them with a wildcard before the end: each of these may be looked at for one request.
	Patterns = 256
	// ListedPaths bounds the paths that a stage lists.
	ListedPaths = 20_000
	// Needs bounds each list of what a stage declares to need.
	Needs = 1000
	// Schema and SchemaDepth bound the schema of a configuration, in bytes and in levels of JSON.
	Schema      = 64 << 10
	SchemaDepth = 32
	// SchemaStates bounds the states of all regular expressions in it.
	SchemaStates = 50_000
	// Features bounds each list of names that a stage has of its release of Kubernetes, Kinds that of its kinds of objects, and
	// KindVersions all of their versions.
	Features     = 2000
	Kinds        = 5000
	KindVersions = 20_000
	// Problems bounds the problems with a configuration.
	Problems = 1000
	// Hooks bounds the hooks of each sort, the health checks, and the mux-and-discovery signals.
	Hooks = 1000
	// CheckNames bounds the names of health checks of which the host has metrics, those of all processes of all stages together.
	CheckNames = 10_000
	// ResourceSizes bounds the resources of which one process can report the size, ResourceName their names.
	ResourceSizes = 10_000
	ResourceName  = 512
)

// How often a stage can report.
const (
	// EventPause is the least time between two events of Watch that are taken in; those that come faster are merged. EventShare
	// is the part of the time, 1/EventShare, that taking them in may take.
	EventPause = 100 * time.Millisecond
	EventShare = 5
	// Events and EventBytes bound the events, and what they hold, that are read in one pause.
	Events     = 100
	EventBytes = 16 << 20
	// ClaimsPause is the least time between two writes of what stages claim into the data directory.
	ClaimsPause = time.Second
	// PublishPause is the least time between two publications of the chain because of what stages report.
	PublishPause = 20 * time.Millisecond
)

// The log of a process.
const (
	// LogBurst and LogPerSecond are how many lines a process may log at once and per second. A line counts once more for each
	// LogUnit bytes.
	LogBurst     = 10_000
	LogPerSecond = 2000
	LogUnit      = 256
	// LogLine is where a line is cut.
	LogLine = 64 << 10
)

// Metrics bounds the metrics of one stage: the length of the text in bytes, its series, its lines of comments, two for
// each family as a rule, and the labels of all series.
type Metrics struct{ Bytes, Samples, Comments, Labels int }

// StageMetrics are the bounds of every stage, but for those of TrustedMetrics.
func StageMetrics() Metrics {
	return Metrics{Bytes: 4 << 20, Samples: 20_000, Comments: 10_000, Labels: 200_000}
}

// TrustedMetrics are the bounds of stages that are as powerful as the server anyway: Kubernetes' own have some 600 series for each custom
// resource that clients use, of which there can be thousands.
func TrustedMetrics() Metrics {
	return Metrics{Bytes: 512 << 20, Samples: 2_000_000, Comments: 40_000, Labels: 20_000_000}
}

// MetricWarnings bounds the metrics of a stage that are logged because they are left out.
const MetricWarnings = 100

// Responses of a stage, and its calls of the host.
const (
	// ResponseHead bounds the head of a response, and its trailers, in bytes.
	ResponseHead = 16 << 20
	// HeadLine is what each line counts in addition, in bytes, of a head that has more than HeadLines.
	HeadLine  = 256
	HeadLines = 128
	// ResponseConnection bounds the Connection headers of a response, in bytes.
	ResponseConnection = 1 << 10
	// StageHeads and TotalHeads bound the bytes that large heads of responses hold at the same time, those of one stage and
	// those of all, until the client has them. One that does not fit waits for HeadWait.
	StageHeads = 128 << 20
	TotalHeads = 256 << 20
	HeadWait   = 10 * time.Second
	// StageChunks and TotalChunks bound what chunks of watches hold until they have come whole, those of one stage and
	// those of all. For one of more than Chunk bytes, and one that does not fit, nothing is held: it is passed on in
	// pieces. So is one whose rest takes longer than ChunkWait.
	Chunk       = 2 << 20
	StageChunks = 32 << 20
	TotalChunks = 64 << 20
	ChunkWait   = 100 * time.Millisecond
	// WatchEvent bounds the events of a watch that can go on in another process, whose beginnings count as chunks do.
	// With a longer one, and one that does not fit, the watch ends with its process.
	WatchEvent = 4 << 20
	// ResponseTrailers bounds the trailers for a client of one response, and DeclineWarnings the warnings of all stages that decline a
	// request, in bytes.
	ResponseTrailers = 64 << 10
	DeclineWarnings  = 16 << 10
	// AuditPart bounds a message with what a stage adds to an audit event, AuditParts all that the requests in flight
	// have, and AuditWait the time that one waits for that: who sends it leaves out objects then.
	AuditPart  = 256 << 20
	AuditParts = 512 << 20
	AuditWait  = 10 * time.Second
	// Informational bounds the informational responses to one request.
	Informational = 100
	// HostConnections bounds the connections of a stage to the host, which may have 1/ConnectionShare of its descriptors if that is less.
	HostConnections = 4096
	ConnectionShare = 8
	// CallHead bounds the head of a request that a stage makes, in bytes: one that hands a request on sends the same again. CallHeads
	// bounds all of a stage that are not complete, CallHeadTime the time until one is, and CallIdle that of a connection without a request.
	CallHead  = 4 << 20
	CallHeads = 32 << 20
	// CallTarget bounds the target of such a request: those of clients are not longer.
	CallTarget   = 1 << 20
	CallHeadTime = 30 * time.Second
	CallIdle     = 10 * time.Minute
	// DelegateCalls bounds the requests of a stage for discovery and OpenAPI of its delegates that are served at a time,
	// WaitingCalls those that wait for that, each for CallWait. Stages as powerful as the server have no such bound.
	DelegateCalls = 8
	// OwnCalls bounds those that it makes in its own name and that are served at a time, without watches and upgrades, of which it may have
	// OwnStreams. The rest is the same.
	OwnCalls   = 64
	OwnStreams = 128
	// AuditAnnotations bounds what a stage without paths of Kubernetes adds to an audit event as annotations, in bytes.
	AuditAnnotations = 64 << 10
	// Causes is how many of the requests are kept that led to one which a stage makes in its own name.
	Causes       = 32
	WaitingCalls = 100
	CallWait     = 5 * time.Second
	// Leads is for how many leads a stage asks at a time, and has, with all its processes. LeadTime is how long a lead
	// stays with a host that has died.
	Leads    = 16
	LeadTime = 10 * time.Second
	// CallBurst is how many bytes such requests of a stage may take at once, CallRate how many a second; each counts for at
	// least CallCost.
	CallBurst = 256 << 20
	CallRate  = 16 << 20
	CallCost  = 16 << 10
)

// Keys of a stage's own in the store.
const (
	// StoreShare is the part of the quota of etcd, 1/StoreShare, that the keys of one stage may fill, with their history.
	StoreShare = 8
	// StoreRequest bounds a request, in bytes: etcd's own bound, which is 1.5 MiB unless it is configured, with what is around it.
	StoreRequest = 2 << 20
	// StoreResponse bounds a response, in bytes.
	StoreResponse = 128 << 20
	// StoreKey bounds the length of a key that is written.
	StoreKey = 4 << 10
	// StoreOps bounds the operations and comparisons of all requests that etcd executes at a time; those of one transaction count
	// at once. StoreLists is how many of several keys there may be among them: each counts as StoreOps/StoreLists.
	StoreOps   = 256
	StoreLists = 2
	// StoreCalls bounds the requests at a time, those that wait for StoreOps included, StoreStreams the streams of watches and of
	// leases that are kept alive, Watches the watches on all of them.
	StoreCalls   = 128
	StoreStreams = 250
	Watches      = 1000
	// Leases bounds the leases, LeaseTTL their time in seconds.
	Leases   = 1000
	LeaseTTL = 24 * 60 * 60
)

// What the host needs: files and connections that it may have open, for itself, etcd and some clients, and for each
// stage that is as powerful as the server. The watches of such a stage are connections to the host, and from the host
// to the stage that it watches: with the three of Kubernetes, a host without clients has 450.
const (
	HostDescriptors  = 256
	StageDescriptors = 160
)

// What a process that is isolated gets of the kernel.
const (
	// OpenFiles bounds the files that a process may have open, unless limits.openFiles says otherwise, and Processes the processes and
	// threads of a user of its own. What the kernel holds for them is the memory of no process.
	OpenFiles = 16384
	Processes = 4096
	// MemoryDir bounds each directory in memory, in bytes, and MemoryFiles the files in it.
	MemoryDir   = 256 << 20
	MemoryFiles = 16384
)

// Who uses which resource, by user agent, as the host counts it for upgrades.
const (
	// Clients bounds the user agents of all resources, ResourceClients those of one, UserAgent what is kept of each, in bytes.
	Clients         = 20_000
	ResourceClients = 100
	UserAgent       = 100
)

// ClientHeads is how much the connections of clients may hold at once, as package connlimit counts it, whichever they
// are: in memory it is about twice as much.
const ClientHeads = 64 << 20

// What the host keeps of a stage for people.
const (
	// Rejected and Shadowed bound the claims that a line of the log, and all of them, name, and Conflicts the paths
	// that the error of a change names.
	Rejected  = 10
	Shadowed  = 20
	Conflicts = 10
)
