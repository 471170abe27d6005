package relay

// WatchMode is what becomes of the watches of a stage when their process is replaced or dies.
type WatchMode int

const (
	ResumeWatches      WatchMode = iota // the next process goes on with them
	VerifyWatches                       // it does, and has to send the latest events again, for a comparison
	PassThroughWatches                  // they end
)

// Resume is what became of a watch when its process could not go on with it. It is empty if a client has ended the
// watch, or the stage for a reason of its own.
type Resume struct {
	Cause  ResumeCause
	Result ResumeResult
	// Difference is between what the client has got, and what the next process sends of that; see VerifyWatches.
	Difference string
}

// ResumeCause is why a watch leaves its process.
type ResumeCause string

const (
	Drained ResumeCause = "drained" // the process drains
	Broken  ResumeCause = "broken"  // the process has died, or has broken off the response
	Moved   ResumeCause = "moved"   // requests of the client go to another process
)

// ResumeResult is how that went. After each but WatchResumed, the watch ends.
type ResumeResult string

const (
	WatchResumed ResumeResult = "resumed"      // another process goes on with it
	NotPromised  ResumeResult = "not_promised" // the stage has not promised that another can, or is not asked to
	NoPosition   ResumeResult = "no_position"  // it is not known what the client has got
	NoProcess    ResumeResult = "no_process"   // no process serves in time, or the stage has left the chain
	OtherWatch   ResumeResult = "refused"      // the next process responds with something else, such as 404
	Expired      ResumeResult = "expired"      // the next process, counted as resumed, does not have the past
	Differs      ResumeResult = "differs"      // the next process, counted as resumed, repeats other events
	TimeOver     ResumeResult = "timeout"      // the time that the client has given the watch is over
	NotWanted    ResumeResult = "stopped"      // the server ends, or etcd was restored from a backup
)
