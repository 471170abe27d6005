package bounds

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bound is one of the list.
type Bound struct {
	// What is bounded, as a subject that people read, and At is by how much.
	What, At string
}

// Group is a part of the list, with what happens to what is beyond.
type Group struct {
	Title, Beyond string
	Bounds        []Bound
}

// List returns all bounds, for people.
func List() []Group {
	metrics, trusted := StageMetrics(), TrustedMetrics()
	return []Group{
		{"What a stage says on its control socket", "The call fails, with an error that names the message and the field: the process does not start, or what it said before stays", []Bound{
			{"a response to `Describe`; to `Configure` and `PrepareRun`, and an event of `Watch`; to `CheckHealth`",
				size(DescribeMessage) + "; " + size(ReportMessage) + "; " + size(HealthMessage)},
			{"a page for operators, and a message with a part of it", size(Page) + ", " + size(PagePiece)},
			{"any other message; headers and trailers of a call", size(OtherMessage) + "; " + size(CallHeaders)},
			{"a name; a line, such as a version; the summary", size(Name) + "; " + size(Line) + "; " + size(Summary)},
			{"the schema of its configuration: length, levels, states of its regular expressions",
				size(Schema) + ", " + count(SchemaDepth) + ", " + count(SchemaStates)},
			{"claims that it needs, flags, files", count(Needs) + " each, a path of a file " + size(FilePath)},
			{"Kubernetes' features, flags, admission plugins; kinds and their versions",
				count(Features) + " each; " + count(Kinds) + " and " + count(KindVersions)},
			{"hooks of each sort, health checks, results of one call, signals", count(Hooks) + " each"},
			{"paths that it lists", count(ListedPaths)},
		}},
		{"What is cut", "The rest is left out", []Bound{
			{"the reason of a failed check, a problem with a configuration; the message of an error", size(Reason) + "; " + size(Error)},
			{"problems with a configuration that are reported", count(Problems)},
			{"a line of the log; lines at once, and a second", size(LogLine) + "; " + count(LogBurst) + ", " + count(LogPerSecond)},
			{"resources of which it reports the size; their names", count(ResourceSizes) + "; " + size(ResourceName)},
			{"annotations of an audit event, unless it may have paths of Kubernetes", size(AuditAnnotations)},
			{"names of checks that have metrics, of all stages", count(CheckNames)},
			{"trailers of a response, and warnings of all stages that decline a request, for a client",
				size(ResponseTrailers) + "; " + size(DeclineWarnings)},
		}},
		{"Claims", "The claims beyond do not count, which the log says at most every " + length(LogPause), []Bound{
			{"a claim: path, segments", size(ClaimPath) + ", " + count(ClaimSegments)},
			{"the claims of a stage, and all of their segments", count(Claims) + ", " + count(Segments)},
			{"those of them with a `*` before the end", count(Patterns)},
			{"writes of them into the data directory", "one every " + length(ClaimsPause) + ", which has all that came until then"},
			{"events that change them", "one every " + length(EventPause) + ", which has all that came until then; at most 1/" + strconv.Itoa(EventShare) + " of the time"},
		}},
		{"Metrics", "The metrics of the stage are left out of the scrape", []Bound{
			{"text, series, lines of comments, labels", size(metrics.Bytes) + ", " + count(metrics.Samples) + ", " + count(metrics.Comments) + ", " + count(metrics.Labels)},
			{"of a stage that is as powerful as the server (`keys`, `store: registry`)",
				size(trusted.Bytes) + ", " + count(trusted.Samples) + ", " + count(trusted.Comments) + ", " + count(trusted.Labels)},
			{"scrapes at a time", "1; those who ask meanwhile get its result"},
		}},
		{"Responses", "The request gets 500, or breaks off", []Bound{
			{"a head, or trailers; its Connection headers", size(ResponseHead) + "; " + size(ResponseConnection)},
			{"heads over 128 KiB, until the client has them: those of a stage; those of all stages; how long the next one waits", size(StageHeads) + "; " + size(TotalHeads) + "; " + length(HeadWait)},
			{"the same of heads of more than " + count(HeadLines) + " lines, where each line counts",
				strconv.Itoa(HeadLine) + " bytes more"},
			{"a chunk of a watch that is passed on as one; those of a stage that have come in part; those of all; the time that the " +
				"rest takes: more go in pieces", size(Chunk) + "; " + size(StageChunks) + "; " + size(TotalChunks) + "; " + length(ChunkWait)},
			{"an event of a watch that outlives its process; such events that have come in part count as chunks: after a longer one, " +
				"the watch ends with its process", size(WatchEvent)},
			{"informational responses to one request", count(Informational)},
		}},
		{"Requests of the stage to the host", "The connection is closed, or the request gets 429 or 431", []Bound{
			{"connections", count(HostConnections) + ", or 1/" + strconv.Itoa(ConnectionShare) + " of the host's descriptors; no such bound for a stage as powerful as the server"},
			{"a head; all that are not complete; the time until it is; a connection without a request",
				size(CallHead) + "; " + size(CallHeads) + "; " + length(CallHeadTime) + "; " + length(CallIdle)},
			{"what it adds to audit events by messages, as a stage as powerful as the server: one; all that requests in flight have, for which others wait", size(AuditPart) + "; " + size(AuditParts) + ", " + length(AuditWait)},
			{"the target of a request", size(CallTarget)},
			{"requests to its delegates for discovery and OpenAPI: at a time; that wait, each for " + length(CallWait),
				count(DelegateCalls) + "; " + count(WaitingCalls)},
			{"requests to the server in its own name: at a time; that wait, each for " + length(CallWait) + "; watches and upgrades besides", count(OwnCalls) + "; " + count(WaitingCalls) + "; " + count(OwnStreams)},
			{"requests that are kept of those that led to such a one, each as a digest and 200 bytes of its target", count(Causes)},
			{"leads that it has or waits for; how long one stays with a dead host", count(Leads) + "; " + length(LeadTime)},
			{"what requests to its delegates transfer at once, and a second", size(CallBurst) + ", " + size(CallRate)},
		}},
		{"Clients, whose user agents are counted by resource", "They are not counted", []Bound{
			{"user agents of all resources; of one; what is kept of each",
				count(Clients) + "; " + count(ResourceClients) + "; " + size(UserAgent)},
		}},
		{"Connections of clients", "They are read no further, and those that have held most for the longest time are closed", []Bound{
			{"heads that are not complete or whose requests are under way, and what else unknown clients have sent or not taken", size(ClientHeads)},
		}},
		{"`store: own`", "The request gets etcd's error for it, " + "`ErrNoSpace` or `ResourceExhausted`", []Bound{
			{"keys and values with their history", "1/" + strconv.Itoa(StoreShare) + " of etcd's quota"},
			{"requests at a time; streams; watches", count(StoreCalls) + "; " + count(StoreStreams) + "; " + count(Watches)},
			{"a request; a response, before what it is for is executed; a key",
				size(StoreRequest) + "; " + size(StoreResponse) + "; " + size(StoreKey)},
			{"operations that are executed at a time, those of transactions included", count(StoreOps)},
			{"leases; the time of one", count(Leases) + "; " + length(LeaseTTL*time.Second)},
		}},
		{"What an isolated process has of the kernel", "The system call fails", []Bound{
			{"open files, unless `limits.openFiles` says otherwise or the stage is as powerful as the server; processes and threads, with a user of its own", count(OpenFiles) + "; " + count(Processes)},
			{"`/tmp` and `/dev/shm`: bytes and files, each", size(MemoryDir) + ", " + count(MemoryFiles)},
		}},
	}
}

// length writes a time without parts that are 0.
func length(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func size(n int) string {
	for _, unit := range []struct {
		name  string
		bytes int
	}{{"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// count writes a number with commas between thousands.
func count(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return count(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
