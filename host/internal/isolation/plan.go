package isolation

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Machine is what this machine can do. The zero value can do nothing.
type Machine struct {
	// Root is set if processes can be given to other users.
	Root bool
	// Namespaces is why there are none, nil if there are.
	Namespaces error
	// Filter is why there is no seccomp filter, nil if there is.
	Filter error
	// Landlock is the version of its ABI, 0 if there is none.
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
	uid        int // of its own; 0 if it keeps the host's
	filter     bool
	landlock   int
}

// plan decides what is done for a process, and returns an error for each means that is not
// available. uidErr is why the process cannot have a user of its own.
func (m *Machine) plan(p Process, uid int, uidErr error) (plan, []error) {
	var missing []error
	pl := plan{means: []string{meansNNP, meansNoCore}}
	if m.Namespaces == nil {
		pl.namespaces = true
		pl.means = append(pl.means, meansUser, meansMount, meansPID, meansIPC, meansUTS)
		if !p.Network {
			pl.means = append(pl.means, meansNet)
		}
	} else {
		missing = append(missing, fmt.Errorf("namespaces: %w", m.Namespaces))
	}
	if m.Root && m.Namespaces == nil {
		if uidErr == nil {
			pl.uid = uid
			pl.means = append([]string{meansUID}, pl.means...)
		} else {
			missing = append(missing, fmt.Errorf("a user of its own: %w", uidErr))
		}
	}
	if m.Filter == nil {
		pl.filter = true
		pl.means = append(pl.means, meansSeccomp)
	} else {
		missing = append(missing, fmt.Errorf("seccomp: %w", m.Filter))
	}
	if m.Landlock > 0 {
		pl.landlock = m.Landlock
		pl.means = append(pl.means, fmt.Sprintf("landlock%d", m.Landlock))
	} else {
		missing = append(missing, errors.New("landlock: the kernel has none"))
	}
	return pl, missing
}

// refusal is the error for a stage that requires what is missing.
func refusal(stage string, missing []error) error {
	texts := make([]string, len(missing))
	for i, err := range missing {
		texts[i] = err.Error()
	}
	return fmt.Errorf("stages.%s.isolation is required, but this machine lacks %s; set it to auto for the rest",
		stage, strings.Join(texts, "; and "))
}

// Users that no account has: the range that systemd keeps for DynamicUser.
const (
	firstUser = 61184
	lastUser  = 65519
)

// IsStageUser reports whether a user is one that a host which runs as root gives to stages.
func IsStageUser(uid int) bool { return firstUser <= uid && uid <= lastUser }

// othersCan returns an error if other users than the owner cannot do with a file what the bits say.
func othersCan(path string, bits os.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		bits |= 0o1
	}
	if info.Mode().Perm()&bits != bits {
		want := "o+rX"
		if bits&0o2 != 0 {
			want = "o+rwX"
		}
		return fmt.Errorf("%s has mode %04o, which keeps other users out: run chmod %s %s", path, info.Mode().Perm(), want, path)
	}
	return nil
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
