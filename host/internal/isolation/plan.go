package isolation

import (
	"fmt"
	"strings"
)

// Machine is what this machine can do. The zero value can do nothing.
type Machine struct {
	// Root is set if this process runs as root: stages have users of their own then.
	Root bool
	// Users gives them; they are given for the life of this process if it is nil.
	Users *Users
	// OwnUsers is why root cannot give processes to other users, nil if it can.
	OwnUsers error
	// Namespaces is why it has no namespaces of its own, nil if it has.
	Namespaces error
	// Filter is why there is no seccomp filter, nil if there is.
	Filter error
	// Landlock is the version of its ABI, or 0.
	Landlock int
}

// The names of the means, but for Landlock's, which has a number.
const (
	meansUID     = "uid"
	meansUser    = "userns"
	meansMount   = "mnt"
	meansPID     = "pid"
	meansIPC     = "ipc"
	meansUTS     = "uts"
	meansNet     = "net"
	meansNNP     = "nnp"
	meansNoCore  = "nocore"
	meansSeccomp = "seccomp"
)

// plan is what is done for one process.
type plan struct {
	means      []string
	namespaces bool
	own        bool // whether it has a user of its own
	filter     bool
	landlock   int
}

// shared reports whether the process has the user of other processes, and sees what they see.
func (pl plan) shared() bool { return !pl.namespaces && !pl.own }

// plan decides what is done for a process, and returns an error for each means that is not available, which says what the
// stage can do for want of it.
func (m *Machine) plan(p Process) (plan, []error) {
	var missing []error
	pl := plan{own: m.Root, means: []string{meansNNP, meansNoCore}}
	if m.Root {
		pl.means = append([]string{meansUID}, pl.means...)
	}
	if m.Namespaces == nil {
		pl.namespaces = true
		pl.means = append(pl.means, meansUser, meansMount, meansPID, meansIPC, meansUTS)
		if !p.Network {
			pl.means = append(pl.means, meansNet)
		}
	} else {
		missing = append(missing, fmt.Errorf("namespaces (%w): the stage %s", m.Namespaces, m.withoutNamespaces()))
	}
	if m.Filter == nil {
		pl.filter = true
		pl.means = append(pl.means, meansSeccomp)
	} else {
		missing = append(missing, fmt.Errorf("seccomp (%w): the stage can make every system call", m.Filter))
	}
	if m.Landlock > 0 {
		pl.landlock = m.Landlock
		pl.means = append(pl.means, fmt.Sprintf("landlock%d", m.Landlock))
	} else {
		missing = append(missing, fmt.Errorf("landlock (the kernel has none)%s", m.withoutLandlock()))
	}
	return pl, missing
}

// withoutNamespaces is what a stage can do for want of them.
func (m *Machine) withoutNamespaces() string {
	var can []string
	if !m.Root {
		can = append(can, "has the user of catena")
	}
	if m.Landlock == 0 {
		can = append(can, "sees other processes")
	}
	if m.Landlock < landlockUnix {
		can = append(can, "can connect to sockets of other programs that are open to its user")
	}
	if !m.Root && m.Landlock < landlockSignals {
		can = append(can, "can send signals to the host")
	}
	return strings.Join(append(can, "can leave processes that go on until the host ends, or longer if that is killed"), ", ")
}

// withoutLandlock is what a stage can do for want of it.
func (m *Machine) withoutLandlock() string {
	switch {
	case m.Namespaces == nil:
		return ": only namespaces keep files out of reach"
	case m.Root:
		return ": the stage can read all files that are readable for every user"
	}
	return ": the stage can read and write all files of the user that runs catena, keys included"
}

// Versions of Landlock's ABI from which on it governs more than files.
const (
	landlockTruncate = 3
	landlockSignals  = 6
	landlockUnix     = 9
)

// refusal is the error for a stage that requires what is missing.
func refusal(stage string, missing []error) error {
	texts := make([]string, len(missing))
	for i, err := range missing {
		texts[i] = err.Error()
	}
	return fmt.Errorf("stages.%s.isolation is required, but this machine lacks %s; set it to auto for the rest, or see docs/security.md for what gives it",
		stage, strings.Join(texts, "; and "))
}

// Summary is a short form of the reported means, for a column.
func Summary(means []string) string {
	if len(means) == 0 {
		return "off"
	}
	var short []string
	for _, name := range means {
		switch name {
		case meansNNP, meansNoCore, meansIPC, meansUTS:
			continue
		}
		short = append(short, name)
	}
	if len(short) == 0 {
		return strings.Join(means, "+")
	}
	return strings.Join(short, "+")
}
