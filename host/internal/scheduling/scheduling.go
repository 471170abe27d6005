// Package scheduling has the kernel schedule this process, and those that it launches, for throughput.
//
// With Linux' default policy, a thread that wakes up may interrupt one that runs. A request to a chain wakes up several
// processes one after the other, so where all processors are busy each of them is interrupted for each request. With
// the policy batch, a thread that wakes up takes an idle processor or waits until a thread gives way, and finds the
// work of several requests then. See sched(7).
package scheduling

// The policies. All others, which an operator has given the process by other means, are kept.
const (
	Batch = "batch"
	Other = "other"
)

// Policies are the policies that Set takes.
func Policies() []string { return []string{Batch, Other} }

// Set makes Batch or Other the policy of each thread of this process that has one of the two. What these start inherits it, other processes
// included. It does nothing on systems other than Linux. Errors are those of the system, which may forbid it.
func Set(policy string) error { return set(policy) }
