// Package seccomp filters the system calls of an isolated stage.
//
// Each system call that the kernel had when this package was written is in a rule, which allows
// it, refuses it, or looks at its arguments; all others, and those of other architectures, fail as
// in a kernel that does not have them. A filter sees numbers and not what pointers lead to: paths and
// structures are for namespaces and Landlock.
package seccomp

// Options are what a filter depends on.
type Options struct {
	// Internet allows sockets of IPv4 and IPv6: the process has a network namespace of its own, or was
	// granted the network.
	Internet bool
	// SharedFiles is set if the process has the user of other processes, and sees their files: it must not
	// change modes, owners, times, attributes and flags of files then, as Landlock does not prevent that.
	SharedFiles bool
	// Truncate allows truncate, which Landlock governs from version 3 on.
	Truncate bool
	// SharedProcesses is set if the process sees processes of others that have its user: it can
	// change priorities and limits only of itself then.
	SharedProcesses bool
}
