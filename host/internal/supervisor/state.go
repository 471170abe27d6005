package supervisor

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/supervisor/generation"
)

// state is what the lock of a Supervisor guards: the chain, and all that changes of its stages. Who has it holds the lock: it is
// had from Supervisor.lock, and not used after unlock. Nothing that can take long is done meanwhile; Publish is called under it.
type state struct {
	mu        sync.Mutex
	publishTo func(chain []Published, split *Split)
	events    *outbox

	// chain is from head to tail. The slice is replaced, never changed.
	chain []*stage
	// stages are those of the chain, and others that still have a process.
	stages      map[*stage]bool
	callers     map[string]*generation.Generation // by token
	pace        pace
	holdTimeout time.Duration
	stopping    bool
	// started says that Start has returned, and hooksDue that the server's start has come to
	// the post-start hooks, so that a generation which serves from now on runs its own.
	started, hooksDue bool
	// complete is closed when all stages know all of their paths.
	complete   chan struct{}
	isComplete bool
	// probation is that of the latest change, nil if there is none. It is set under the lock alone.
	probation atomic.Pointer[probation]
}

// lock returns what it guards until unlock.
func (s *Supervisor) lock() *state {
	s.locked.mu.Lock()
	return &s.locked
}

func (now *state) unlock() {
	now.mu.Unlock()
	now.events.send()
}

// onProbation is the probation of the latest change, nil if there is none. The caller need not hold the lock, and may find that it has just ended.
func (s *Supervisor) onProbation() *probation { return s.locked.probation.Load() }
