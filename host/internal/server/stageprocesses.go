package server

import (
	"errors"
	"fmt"
	"os"
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

// of returns of what stage a process is a part. It is true for one that the host has started or that is confined as stages are, also if it is not
// known for which stage.
func (p *stageProcesses) of(peer guard.Peer) (of supervisor.Launched, ours bool, err error) {
	if peer.PID == 0 { // it is outside of this process' namespace, and so of no stage
		return of, false, nil
	}
	lineage, ok := usage.Lineage(peer.PID)
	confined, err := confined(peer)
	if !ok || err != nil || !peer.Lives() {
		return of, false, errEnded
	}
	launched := map[int]supervisor.Launched{}
	if stages := p.stages.Load(); stages != nil {
		launched = stages.Processes()
	}
	for i, process := range lineage {
		if process.PID == os.Getpid() {
			return of, i > 0, nil // what stages leave behind falls to this process
		}
		for _, id := range []int{process.PID, process.Group} {
			if of, ok := launched[id]; ok {
				return of, true, nil
			}
		}
	}
	return of, confined || p.hasUser(peer), nil
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
	stages := p.stages.Load()
	if stages == nil {
		return false
	}
	for _, of := range stages.Processes() {
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

// admitNone admits processes of this user and of root that are of no stage.
func (p *stageProcesses) admitNone(peer guard.Peer) error {
	return p.admitOnly(peer, func(supervisor.Launched) bool { return false })
}

// admitRegistry is admitNone, and admits stages that are granted the whole store.
func (p *stageProcesses) admitRegistry(peer guard.Peer) error {
	return p.admitOnly(peer, func(of supervisor.Launched) bool { return of.Grants.Store == grants.Registry })
}

// admitOnly is admitNone, and admits some of the stages.
func (p *stageProcesses) admitOnly(peer guard.Peer, granted func(supervisor.Launched) bool) error {
	of, ours, err := p.of(peer)
	switch {
	case err != nil:
		return err
	case !ours:
		return guard.Own(peer)
	case of.Stage == "" || !granted(of):
		return fmt.Errorf("process %d is of a stage, or is confined like one by a seccomp filter that this host does not have", peer.PID)
	}
	return nil
}
