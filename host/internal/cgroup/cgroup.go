// Package cgroup puts the processes of stages into groups of cgroup v2, one for each process with
// all that it starts: what is in a group is limited together, and ends together.
//
// The groups are made where the cgroup of this process is delegated to its user: always for
// root, for others if the unit of systemd that runs it has Delegate=yes. Limits need the controllers
// memory, cpu and pids there too.
//
//	the cgroup of this process
//	└── catena-HASH           the Tree: the name is that of the data directory
//	    ├── host              this process, if it had to make room for the controllers
//	    └── STAGE-GENERATION  a Group
//
// A process joins its group as it is cloned (Group.Open), so that nothing that it starts can be outside.
// A host that is killed leaves its groups behind: Open ends what is in them.
package cgroup

import (
	"errors"
	"fmt"
	"time"
)

// Means is the name of a group among the means that isolate a process (see package isolation).
const Means = "cgroup"

// The limits, by the names of their keys in stages.NAME.limits and of their controllers.
const (
	Memory = "memory"
	CPU    = "cpu"
	PIDs   = "pids"
)

// Limits bound what all processes of a group use together. 0 is no limit.
type Limits struct {
	// Memory is in bytes. The kernel kills all processes of a group that cannot keep to it.
	Memory int64
	// CPU is in thousandths of a processor.
	CPU int64
	// PIDs is the number of processes and threads.
	PIDs int64
}

// Lack is a limit that cannot be in force.
type Lack struct {
	Limit string
	Err   error
}

// Reached counts how often a group has come to each of its limits.
type Reached struct {
	// Memory is how many processes the kernel has killed for it, CPU in how many periods the
	// group had to wait, PIDs how many processes and threads could not be started.
	Memory, CPU, PIDs int64
}

// ErrUnsupported is why there are no groups on a system other than Linux.
var ErrUnsupported = errors.New("cgroups take Linux")

// errNotOpened is what the nil Tree lacks.
var errNotOpened = errors.New("cgroups are not in use here")

// names returns those of the limits that are set.
func (l Limits) names() []string {
	var names []string
	for _, limit := range []struct {
		name  string
		value int64
	}{{Memory, l.Memory}, {CPU, l.CPU}, {PIDs, l.PIDs}} {
		if limit.value > 0 {
			names = append(names, limit.name)
		}
	}
	return names
}

// file is a file of a group with what is written to it.
type file struct {
	name, text string
	// optional files are missing in some kernels.
	optional bool
}

// period is the time over which a group may use its share of the processors.
const period = 100 * time.Millisecond

// files are what has to be written for a limit.
func (l Limits) files(limit string) []file {
	switch limit {
	case Memory:
		return []file{
			{name: "memory.oom.group", text: "1"},
			{name: "memory.swap.max", text: "0", optional: true},
			{name: "memory.max", text: fmt.Sprint(l.Memory)},
		}
	case CPU:
		return []file{{name: "cpu.max", text: fmt.Sprintf("%d %d", l.CPU*period.Microseconds()/1000, period.Microseconds())}}
	case PIDs:
		return []file{{name: "pids.max", text: fmt.Sprint(l.PIDs)}}
	}
	return nil
}
