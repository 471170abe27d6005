package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Applied says what Apply has changed.
type Applied struct {
	Added     []string `json:"added,omitempty"`
	Removed   []string `json:"removed,omitempty"`
	Swapped   []string `json:"swapped,omitempty"`
	Reordered bool     `json:"reordered,omitempty"`
}

// Apply makes the chain what specs say, from head to tail. Stages that are new or have
// changed are brought up beside those that serve, the tail first. A stage whose list of
// stages downstream changes is swapped too, since it has been told of them when it was
// configured. When all are ready, requests move at one point in time, and what has been
// replaced or removed is drained in the background. Until then an error, which names the
// stage, leaves everything as it was. Apply waits for a change that is under way, and ends
// the probation of an earlier one.
func (s *changes) Apply(ctx context.Context, specs []Spec) (Applied, error) {
	end, err := s.Begin(ctx, applyChain, "")
	if err != nil {
		return Applied{}, fmt.Errorf("nothing has changed: %w", err)
	}
	defer end()
	c, err := s.change(ctx, request{specs: specs})
	if err != nil {
		return Applied{}, fmt.Errorf("nothing has changed: %w", err)
	}
	return c.applied(), nil
}

// applied is what the change has come to.
func (c *change) applied() Applied {
	a := Applied{Added: c.plan.added, Removed: c.plan.removed, Reordered: c.plan.reordered}
	for _, m := range c.moved {
		if m.next != nil && !slices.Contains(c.plan.added, m.stage.name) {
			a.Swapped = append(a.Swapped, m.stage.name)
		}
	}
	return a
}

// SwapOptions say how a stage is swapped.
type SwapOptions struct {
	// Change gets what the stage is made from, to change it; nil changes nothing. An error refuses the swap. It is called again if
	// the stage has meanwhile got its old generation back.
	Change func(*Spec) error
	// Other reports whether the stage becomes one of another binary or release: such a process is not compared with the
	// one that serves meanwhile.
	Other bool
	// Rollback says when the old generation gets its place back. It takes the place of
	// that of the Spec if it is not zero.
	Rollback Rollback
	// Default is the Rollback of stages whose Spec has none. A probation by default ends when any other operation
	// begins.
	Default Rollback
	// Canary says how the requests move step by step; nil if all do at once.
	Canary *canary.Plan
	// Allow names what may be in the way of another release, see Move.
	Allow []string
	// Along, if not nil, takes other stages along.
	Along Along
}

// Along is asked of each other stage when a new process of the swapped one, which is made from a Spec, has described
// itself. It changes the Spec of one that is to be swapped with it, and says why; for the others it returns "".
type Along func(swapped Spec, next *stagev1.DescribeResponse, other *Spec) (string, error)

// Swapped says how a swap went.
type Swapped struct {
	Stage   string `json:"stage"`
	From    string `json:"from"` // generation
	To      string `json:"to"`   // generation
	Version string `json:"version"`
	// Ready is the time from the beginning until the new generation was ready to
	// take over.
	Ready time.Duration `json:"readyNanoseconds"`
	// Also are stages that were swapped with it: those upstream, if it lists other paths than the generation before,
	// and those that went along.
	Also []string `json:"also,omitempty"`
	// Probation is how long the old generation can take its place again.
	Probation time.Duration `json:"probationNanoseconds,omitempty"`
	// Canary is how the requests move, if not all at once.
	Canary *canary.Plan `json:"canary,omitempty"`
}

// Swap brings up a new generation of a stage beside the one that serves, waits
// until it is ready, moves new requests to it at one point in time, and then drains
// and ends the old one in the background. Until the move, an error leaves the old
// generation as it was. While the chain is being changed, or the stage restarted, a swap
// is refused.
func (s *changes) Swap(ctx context.Context, name string, opts SwapOptions) (*Swapped, error) {
	if _, err := s.stage(name); err != nil {
		return nil, err
	}
	operation := swapStage
	if opts.Other {
		operation = swapOther
	}
	end, err := s.Begin(ctx, operation, name)
	if err != nil {
		return nil, err
	}
	defer end()
	specs, err := s.changed(name, opts.Change)
	if err != nil {
		s.swapRefused(name, err)
		return nil, err
	}
	r := request{
		specs: specs, swap: name, unasked: opts.Default, canary: opts.Canary, allow: opts.Allow, along: opts.Along,
	}
	if opts.Canary != nil {
		r.also = upstream(specs, name)
	}
	if opts.Rollback.wanted() || opts.Canary != nil {
		r.rollback = &opts.Rollback
	}
	c, err := s.change(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("stage %q goes on with its old generation: %w", name, err)
	}
	return c.swapped(), nil
}

// changed returns what the stages are to be made from. There is no probation any more then that could make them another.
func (s *changes) changed(name string, change func(*Spec) error) ([]Spec, error) {
	for {
		p, specs := s.of.onProbation(), s.of.Specs()
		i := slices.IndexFunc(specs, func(spec Spec) bool { return spec.Name == name })
		if i >= 0 && change != nil {
			specs[i].Process = specs[i].Process.Clone()
			if err := change(&specs[i]); err != nil {
				return nil, err
			}
		}
		if p == nil || p.accept(anotherChange) {
			return specs, nil
		}
	}
}

// upstream are the stages before one that the host starts. In a canary each side has its own: what they know of a stage downstream,
// such as discovery, is then that of their side.
func upstream(specs []Spec, name string) []string {
	var names []string
	for _, spec := range specs {
		if spec.Name == name {
			break
		}
		if spec.Attach == "" {
			names = append(names, spec.Name)
		}
	}
	return names
}

func (c *change) swapped() *Swapped {
	r := &Swapped{Stage: c.swap, Ready: c.ready, Canary: c.canary}
	for _, m := range c.moved {
		if m.stage.name != c.swap {
			r.Also = append(r.Also, m.stage.name)
			continue
		}
		r.From, r.To, r.Version = id(m.old), m.next.ID(), m.next.Version()
	}
	if p := c.supervisor.onProbation(); p != nil {
		r.Probation = p.length
	}
	return r
}
