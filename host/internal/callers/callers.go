// Package callers knows which processes may call the host, and of which stage each is: by the token that it was given,
// and by what the kernel says of who has connected. It waits for no change of the chain.
package callers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/usage"
)

// Callers are the processes of stages that the host has launched, or attached to, and that have not been seen to end.
type Callers struct {
	// users are those that stages have; nil if they have that of the host.
	users *isolation.Users

	mu      sync.RWMutex
	byToken map[string]*generation.Generation
	byPID   map[int]*generation.Generation
}

// New returns the callers of a host, at first without any. Users are those that stages have; nil if they have that of
// the host.
func New(users *isolation.Users) *Callers {
	return &Callers{users: users, byToken: map[string]*generation.Generation{}, byPID: map[int]*generation.Generation{}}
}

// Open is New with the users that stages have, as the data directory says, if the host runs as root: no others can have users of their own.
func Open(dataDir string) (*Callers, error) {
	if os.Geteuid() != 0 {
		return New(nil), nil
	}
	users, err := isolation.OpenUsers(dataDir)
	return New(users), err
}

// Users are those that stages have; nil if they have that of the host.
func (c *Callers) Users() *isolation.Users { return c.users }

// Add lets a process call the host.
func (c *Callers) Add(g *generation.Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byToken[g.Token()], c.byPID[g.PID()] = g, g
}

// Remove forgets a process that has ended, if it is known.
func (c *Callers) Remove(g *generation.Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byToken, g.Token())
	if c.byPID[g.PID()] == g { // and not another, which has its number by now
		delete(c.byPID, g.PID())
	}
}

// WithToken returns the process that has a token, nil if none has.
func (c *Callers) WithToken(token string) *generation.Generation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byToken[token]
}

// withPID returns the process with a number, nil if the host has not launched it.
func (c *Callers) withPID(pid int) *generation.Generation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byPID[pid]
}

// errEnded is why it cannot be told whose process has opened a connection.
var errEnded = errors.New("the process that has connected has ended")

// AreOf reports whether a process, of which err says why it is not known, is one of a stage, or descends from one.
// Where the system does not say who has connected, every process is.
func (c *Callers) AreOf(stage string, peer guard.Peer, err error) bool {
	if err != nil {
		return errors.Is(err, guard.ErrNoPeers)
	}
	if g := c.withPID(peer.PID); g != nil && peer.Lives() {
		return g.Name() == stage
	}
	lineage, _ := usage.Lineage(peer.PID)
	return peer.Lives() && slices.ContainsFunc(lineage, func(pid int) bool {
		g := c.withPID(pid)
		return g != nil && g.Name() == stage
	})
}

// descends reports whether a process is one that stages have started, or is confined as stages are. It admits no
// process: what a process descends from is looked up, and changes meanwhile.
func (c *Callers) descends(peer guard.Peer) (bool, error) {
	if peer.PID == 0 { // it is outside of this process' namespace, and so of no stage
		return false, nil
	}
	lineage, ok := usage.Lineage(peer.PID)
	confined, err := confined(peer)
	if !ok || err != nil || !peer.Lives() {
		return false, errEnded
	}
	for i, pid := range lineage {
		if pid == os.Getpid() {
			return i > 0, nil // what stages leave behind falls to this process
		}
		if c.withPID(pid) != nil {
			return true, nil
		}
	}
	return confined || c.hasUser(peer), nil
}

// confined reports whether a process has more filters of its system calls than this one, as isolated stages have, and
// all that they start: those that another host has left behind, and those that a command asks what they are, descend
// from another process.
func confined(peer guard.Peer) (bool, error) {
	theirs, err := peer.Filters()
	if err != nil {
		return false, err
	}
	own, err := guard.OwnFilters()
	return theirs > own, err
}

// Trusted reports whether a stage with processes is as powerful as the server.
func (c *Callers) Trusted(stage string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, g := range c.byPID {
		if g.Name() == stage && g.Spec().Grants.Trusted() {
			return true
		}
	}
	return false
}

// hasUser reports whether a process has the user of a stage.
func (c *Callers) hasUser(peer guard.Peer) bool {
	return c.users != nil && c.users.Stage(peer.UID) != ""
}

// AdmitTo is AdmitNone, and admits the processes of a stage to its socket: those that the host has launched, what they
// have started and is not left behind, and those of the stage's own user, if it has one.
func (c *Callers) AdmitTo(stage string, peer guard.Peer) error {
	if c.users != nil && c.users.Stage(peer.UID) == stage || c.AreOf(stage, peer, nil) {
		return nil
	}
	return c.AdmitNone(peer)
}

// AdmitNone admits processes of this user and of root that are of no stage.
func (c *Callers) AdmitNone(peer guard.Peer) error {
	return c.admitOnly(peer, func(generation.Spec) bool { return false })
}

// AdmitRegistry is AdmitNone, and admits stages that are granted the whole store.
func (c *Callers) AdmitRegistry(peer guard.Peer) error {
	return c.admitOnly(peer, func(spec generation.Spec) bool { return spec.Grants.Store == grants.Registry })
}

// AdmitKeys is AdmitNone, and admits one stage if it is granted keys of its own in the store.
func (c *Callers) AdmitKeys(stage string, peer guard.Peer) error {
	return c.admitOnly(peer, func(spec generation.Spec) bool { return spec.Name == stage && spec.Grants.Store == grants.OwnKeys })
}

// admitOnly is AdmitNone, and admits the processes of some of the stages: the one that the host has launched, and no other.
func (c *Callers) admitOnly(peer guard.Peer, granted func(generation.Spec) bool) error {
	if g := c.withPID(peer.PID); g != nil && peer.Lives() {
		if granted(g.Spec()) {
			return nil
		}
		return fmt.Errorf("process %d is of stage %q", peer.PID, g.Name())
	}
	switch descends, err := c.descends(peer); {
	case err != nil:
		return err
	case descends:
		return fmt.Errorf("process %d was started by one of a stage, or is confined like one by a seccomp filter that this host does not have", peer.PID)
	}
	return guard.Own(peer)
}
