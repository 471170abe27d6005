package server

import (
	"errors"
	"sync"

	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/usage"
)

// peer is the process that has opened a connection to the socket for stages.
type peer struct {
	pid  int
	err  error // why it is not known
	conn *connlimit.Conn

	mu sync.Mutex
	// belongs has what is known of the processes that it may be a part of.
	belongs map[int]bool
}

// process is its id, for the log.
func (p *peer) process() int {
	if p == nil {
		return 0
	}
	return p.pid
}

// isPartOf reports whether the peer is a process, or one that that has started. Where the
// system does not say who has opened a connection, everybody is.
func (p *peer) isPartOf(leader int) bool {
	switch {
	case p == nil:
		return false
	case p.err != nil:
		return errors.Is(p.err, guard.ErrNoPeers)
	case p.pid == leader:
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	belongs, known := p.belongs[leader]
	if !known {
		belongs = usage.Belongs(p.pid, leader)
		if p.belongs == nil {
			p.belongs = map[int]bool{}
		}
		p.belongs[leader] = belongs
	}
	return belongs
}
