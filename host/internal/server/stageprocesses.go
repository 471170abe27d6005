package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/usage"
)

// stageProcesses tells which processes are those of stages, by what the kernel says of who has connected.
type stageProcesses struct {
	// users are those that stages have; nil if they have that of the host.
	users *isolation.Users
	// stages is nil until there are some.
	stages atomic.Pointer[supervisor.Supervisor]
}

// newStageProcesses reads which users stages have, if the host runs as root.
func newStageProcesses(dataDir string) (*stageProcesses, error) {
	if os.Geteuid() != 0 {
		return &stageProcesses{}, nil
	}
	users, err := isolation.OpenUsers(dataDir)
	return &stageProcesses{users: users}, err
}

// errEnded is why it cannot be told whose process has opened a connection.
var errEnded = errors.New("the process that has connected has ended")

// stage returns of which stage a process is: the one that the host has launched, and no other.
func (p *stageProcesses) stage(peer guard.Peer) (of supervisor.Launched, ok bool) {
	of, ok = p.launched()[peer.PID]
	return of, ok && peer.Lives()
}

// areOf reports whether a process, of which err says why it is not known, is one of a stage, or descends from one. Where the system does not say who has
// connected, everybody is.
func (p *stageProcesses) areOf(stage string, peer guard.Peer, err error) bool {
	if err != nil {
		return errors.Is(err, guard.ErrNoPeers)
	}
	if of, ok := p.stage(peer); ok {
		return of.Stage == stage
	}
	lineage, _ := usage.Lineage(peer.PID)
	launched := p.launched()
	return peer.Lives() && slices.ContainsFunc(lineage, func(pid int) bool { return launched[pid].Stage == stage })
}

// descends reports whether a process is one that stages have started, or is confined as stages are. Nobody is admitted because of it: what a process
// descends from is looked up, and changes meanwhile.
func (p *stageProcesses) descends(peer guard.Peer) (bool, error) {
	if peer.PID == 0 { // it is outside of this process' namespace, and so of no stage
		return false, nil
	}
	lineage, ok := usage.Lineage(peer.PID)
	confined, err := confined(peer)
	if !ok || err != nil || !peer.Lives() {
		return false, errEnded
	}
	launched := p.launched()
	for i, pid := range lineage {
		if pid == os.Getpid() {
			return i > 0, nil // what stages leave behind falls to this process
		}
		if _, ok := launched[pid]; ok {
			return true, nil
		}
	}
	return confined || p.hasUser(peer), nil
}

// confined reports whether a process has more filters of its system calls than this one, as isolated stages have, and all that they start: those that another
// host has left behind, and those that a command asks what they are, descend from another process.
func confined(peer guard.Peer) (bool, error) {
	theirs, err := peer.Filters()
	if err != nil {
		return false, err
	}
	own, err := guard.OwnFilters()
	return theirs > own, err
}

// trusted reports whether a stage with processes is as powerful as the server.
func (p *stageProcesses) trusted(stage string) bool {
	for _, of := range p.launched() {
		if of.Stage == stage && of.Grants.Trusted() {
			return true
		}
	}
	return false
}

// hasUser reports whether a process has the user of a stage.
func (p *stageProcesses) hasUser(peer guard.Peer) bool {
	return p.users != nil && p.users.Has(peer.UID)
}

// admitUsers admits processes of this user and of root, and of the users of stages.
func (p *stageProcesses) admitUsers(peer guard.Peer) error {
	if p.hasUser(peer) {
		return nil
	}
	return guard.Own(peer)
}

// admitToSocket is admitUsers for the socket of a stage, without the processes of other stages.
func (p *stageProcesses) admitToSocket(peer guard.Peer, stage string) error {
	if of, ok := p.launched()[peer.PID]; ok && of.Stage != stage {
		return fmt.Errorf("process %d is of stage %q", peer.PID, of.Stage)
	}
	return p.admitUsers(peer)
}

// launched are the processes of stages that the host has started.
func (p *stageProcesses) launched() map[int]supervisor.Launched {
	if stages := p.stages.Load(); stages != nil {
		return stages.Processes()
	}
	return nil
}

// admitNone admits processes of this user and of root that are of no stage.
func (p *stageProcesses) admitNone(peer guard.Peer) error {
	return p.admitOnly(peer, func(supervisor.Launched) bool { return false })
}

// admitRegistry is admitNone, and admits stages that are granted the whole store.
func (p *stageProcesses) admitRegistry(peer guard.Peer) error {
	return p.admitOnly(peer, func(of supervisor.Launched) bool { return of.Grants.Store == grants.Registry })
}

// admitOnly is admitNone, and admits the processes of some of the stages.
func (p *stageProcesses) admitOnly(peer guard.Peer, granted func(supervisor.Launched) bool) error {
	if of, ok := p.stage(peer); ok {
		if granted(of) {
			return nil
		}
		return fmt.Errorf("process %d is of stage %q", peer.PID, of.Stage)
	}
	switch descends, err := p.descends(peer); {
	case err != nil:
		return err
	case descends:
		return fmt.Errorf("process %d was started by one of a stage, or is confined like one by a seccomp filter that this host does not have", peer.PID)
	}
	return guard.Own(peer)
}
