package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// ErrBusy is why an operation is refused that could be had a moment later.
var ErrBusy = errors.New("try again when it is over")

// Operation changes the chain, or brings up a process to look at beside it.
type Operation int

const (
	// swapStage replaces the process of a stage, and swapOther by one of another binary or release.
	swapStage Operation = iota
	swapOther
	// applyChain makes the chain another, and reconcileChain tells stages of others anew.
	applyChain
	reconcileChain
	// swapForLimit replaces a process that has come to its soft limit of memory.
	swapForLimit
	// PlanUpgrade compares a process of another release with the one that serves.
	PlanUpgrade
	// StartShadow brings up a process that gets a copy of requests.
	StartShadow
	// UpgradeHost hands over to another program. Once that has begun, only Stop ends it.
	UpgradeHost
)

// need is what an operation needs a slot for.
type need int

const (
	no need = iota
	// ifFree refuses the operation while another has the slot, and whenFree lets it wait.
	ifFree
	whenFree
)

// operations says what excludes what. Each slot is held by one operation at a time: chain by one that needs the chain
// to stay as it is or to change by no other operation, trial by one that brings up a process beside the one that serves
// to compare the two. An operation is refused beside a canary, or beside a probation, where the column says so, unless
// the probation is that by default, which it ends then; otherwise, if it changes the chain, the change ends the
// probation.
var operations = [...]struct {
	name         string // of the holder of a slot, in a refusal
	chain, trial need
	canary       bool // is refused beside one
	probation    bool // is refused beside one
}{
	swapStage:      {name: "a swap", chain: ifFree, canary: true},
	swapOther:      {name: "a swap", chain: ifFree, trial: ifFree, canary: true},
	applyChain:     {name: "a change of the chain", chain: whenFree}, // one that needs no other process goes on beside a canary, see change
	reconcileChain: {name: "a change of the chain", chain: whenFree, canary: true},
	swapForLimit:   {name: "a swap", chain: ifFree, canary: true, probation: true},
	PlanUpgrade:    {name: "a plan of an upgrade", trial: ifFree, canary: true},
	StartShadow:    {name: "the start of a shadow", chain: ifFree, trial: ifFree, canary: true, probation: true},
	UpgradeHost:    {name: "an upgrade of the host", chain: ifFree, trial: ifFree, canary: true, probation: true},
}

// refuses reports whether the operation is refused beside a probation or a canary.
func (o Operation) refuses(p *probation) bool {
	return p != nil && (p.canary != nil && operations[o].canary || p.canary == nil && operations[o].probation && !p.unasked)
}

// slot is held by one operation at a time.
type slot struct {
	free   *semaphore.Weighted
	holder atomic.Pointer[string]
}

// take takes the slot for holder, if there is need. The error says who has it.
func (s *slot) take(ctx context.Context, n need, holder string) error {
	if n == no {
		return nil
	}
	if !s.free.TryAcquire(1) {
		has := "another change of the chain" // which has just begun, or is just over
		if h := s.holder.Load(); h != nil {
			has = *h
		}
		if n == ifFree {
			return fmt.Errorf("%s is under way: %w", has, ErrBusy)
		}
		if err := acquire(ctx, s.free); err != nil {
			return fmt.Errorf("%s is under way: %w", has, err)
		}
	}
	s.holder.Store(&holder)
	return nil
}

func (s *slot) leave(n need) {
	if n != no {
		s.holder.Store(nil)
		s.free.Release(1)
	}
}

// slots are those that operations need.
type slots struct{ chain, trial slot }

func newSlots() *slots {
	return &slots{chain: slot{free: semaphore.NewWeighted(1)}, trial: slot{free: semaphore.NewWeighted(1)}}
}

func (s *slots) take(ctx context.Context, o Operation, holder string) error {
	op := &operations[o]
	if err := s.chain.take(ctx, op.chain, holder); err != nil {
		return err
	}
	err := s.trial.take(ctx, op.trial, holder)
	if err != nil {
		s.chain.leave(op.chain)
	}
	return err
}

func (s *slots) leave(o Operation) {
	s.trial.leave(operations[o].trial)
	s.chain.leave(operations[o].chain)
}

// Begin begins an operation on a stage, or on the whole chain if stage is empty. The error says what is in the way; it
// is ErrBusy if the operation does not wait for that. Otherwise end is due when the operation is over, and returns when
// its events have been passed on. Stop waits for that, but for the end of UpgradeHost.
func (s *changes) Begin(ctx context.Context, o Operation, stage string) (end func(), err error) {
	name, about := operations[o].name, ""
	if stage != "" {
		name, about = fmt.Sprintf("%s of stage %q", name, stage), fmt.Sprintf("stage %q: ", stage)
	}
	if !s.of.begin() {
		return nil, errStopping
	}
	done := s.of.running.Done
	if o == UpgradeHost {
		done()
		done = func() {}
	}
	err = s.slots.take(ctx, o, name)
	if err == nil {
		// One begins under the slot of the chain alone.
		switch p := s.of.onProbation(); {
		case o.refuses(p):
			s.slots.leave(o)
			err = p.busy()
		case p != nil && operations[o].probation:
			p.accept(name + " has begun")
		}
	}
	if err != nil {
		done()
		return nil, fmt.Errorf("%s%w", about, err)
	}
	return func() {
		s.slots.leave(o)
		s.of.events.flush()
		done()
	}, nil
}
