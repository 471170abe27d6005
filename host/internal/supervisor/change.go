package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// change is a planned change of the chain under way: stages that are brought up beside
// those that serve.
type change struct {
	request
	supervisor *Supervisor
	plan       plan
	// links are the chain to come, from head to tail.
	links []*link
	// removed are the stages that leave the chain.
	removed []*stage
	// turns are those of the stages that are held.
	turns  []turn
	began  time.Time
	ready  time.Duration
	staged map[string]string
	// moved and before are set by move.
	moved  []moved
	before []*stage
}

// link is a stage of the chain to come.
type link struct {
	stage *stage
	spec  Spec
	// added says that the stage is new, changing that it gets another generation.
	added, changing bool
	generation      *generation
}

// newChange makes the stages that are new, and takes the turns of all that are concerned.
func (s *Supervisor) newChange(ctx context.Context, p plan, r request) (*change, error) {
	c := &change{request: r, supervisor: s, plan: p, began: time.Now(), staged: map[string]string{}}
	for _, spec := range r.specs {
		l := &link{spec: spec, added: slices.Contains(p.added, spec.Name), changing: p.concerns(spec.Name)}
		var err error
		if l.added {
			l.stage, err = s.newStage(spec)
		} else {
			l.stage, err = s.stage(spec.Name)
		}
		if err == nil && l.changing && !l.added && l.attached() {
			err = errAttached
		}
		if err == nil && l.changing {
			err = c.hold(ctx, l.stage)
		}
		if err != nil {
			c.release()
			return nil, err
		}
		c.links = append(c.links, l)
	}
	for _, name := range p.removed {
		st, err := s.stage(name)
		if err == nil {
			err = c.hold(ctx, st)
		}
		if err != nil {
			c.release()
			return nil, err
		}
		c.removed = append(c.removed, st)
	}
	return c, nil
}

// hold keeps a stage from being restarted. A swap does not wait for a restart, which
// may be one of many; a change of the chain does.
func (c *change) hold(ctx context.Context, st *stage) error {
	if st.name == c.swap {
		if !st.changing.try() {
			return fmt.Errorf("stage %q: %w", st.name, ErrBusy)
		}
	} else if err := st.changing.wait(ctx); err != nil {
		return fmt.Errorf("stage %q: a restart is under way: %w", st.name, err)
	}
	c.turns = append(c.turns, st.changing)
	return nil
}

func (c *change) release() {
	for _, t := range c.turns {
		t.done()
	}
	c.turns = nil
}

// bringUp takes the new generations to the point at which requests can move to them.
func (c *change) bringUp(ctx context.Context) error {
	for _, l := range c.links {
		if l.changing && !l.added {
			l.stage.emit(Event{Kind: SwapBegun, From: l.stage.generation().ID()})
		}
	}
	if err := c.launch(ctx); err != nil {
		return err
	}
	if err := c.configure(ctx); err != nil {
		return err
	}
	for _, l := range slices.Backward(c.links) {
		if l.generation == nil {
			continue
		}
		if err := c.tolerate(l, c.prepare(ctx, l.generation)); err != nil {
			return err
		}
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	c.ready = time.Since(c.began)
	return c.collide()
}

// launch starts the processes at the same time, and has them check their configurations.
func (c *change) launch(ctx context.Context) error {
	errs := make([]error, len(c.links))
	var wg sync.WaitGroup
	for i, l := range c.links {
		if l.changing {
			wg.Go(func() { errs[i] = c.launchOne(ctx, l) })
		}
	}
	wg.Wait()
	for i, l := range c.links {
		errs[i] = c.tolerate(l, errs[i])
	}
	return errors.Join(errs...)
}

func (c *change) launchOne(ctx context.Context, l *link) error {
	s := c.supervisor
	socket, err := s.listen(l.spec)
	if err != nil {
		return err
	}
	g, err := s.launch(ctx, l.stage, l.spec, socket)
	if err != nil {
		return errors.Join(err, s.close(socket))
	}
	l.generation = g
	return g.validateConfig(ctx)
}

// configure configures the new generations from the tail on. A stage in front of one
// that lists other paths than the one before is swapped too.
func (c *change) configure(ctx context.Context) error {
	var behind []lifecycle.Report[report]
	for _, l := range slices.Backward(c.links) {
		if !l.changing && l.outdated(behind) {
			if err := c.cascade(ctx, l); err != nil {
				return err
			}
		}
		if l.generation != nil {
			_, err := l.generation.Configure(ctx, behind)
			if err := c.tolerate(l, err); err != nil {
				return err
			}
		}
		behind = append([]lifecycle.Report[report]{{Stage: l.spec.Name, Report: l.report()}}, behind...)
	}
	return nil
}

// cascade makes a stage part of the change that was to be left alone.
func (c *change) cascade(ctx context.Context, l *link) error {
	l.stage.log.Info("stage is swapped too, since stages behind it list other paths now")
	if err := c.hold(ctx, l.stage); err != nil {
		return err
	}
	l.changing = true
	c.plan.swapped = append(c.plan.swapped, l.spec.Name)
	l.stage.emit(Event{Kind: SwapBegun, From: l.stage.generation().ID(), Reason: "stages behind it list other paths"})
	return c.tolerate(l, c.launchOne(ctx, l))
}

// report is the latest of the stage as it will be.
func (l *link) report() report {
	if l.generation != nil {
		return l.generation.reported()
	}
	return l.stage.latest()
}

// outdated tells whether the process of a stage was told of other paths of the stages
// behind it than they will have.
func (l *link) outdated(behind []lifecycle.Report[report]) bool {
	g := l.stage.generation()
	return g != nil && !l.attached() && !g.knows(behind)
}

var errAttached = errors.New("it is a process that was started by hand: end it and start another, the host attaches to that")

// attached tells whether the stage is a process that was started by hand, and stays one:
// there is none to swap it for.
func (l *link) attached() bool { return l.spec.Attach != "" && l.stage.present().Attach != "" }

// prepare finishes a generation, which the others of the change can call from then on.
func (c *change) prepare(ctx context.Context, g *generation) error {
	if err := g.PrepareRun(ctx); err != nil {
		return err
	}
	c.supervisor.follow(g)
	staged := maps.Clone(c.staged)
	staged[g.Name()] = g.listener.Path()
	c.staged = staged
	for _, l := range c.links {
		if l.generation != nil {
			l.generation.staged.Store(&staged)
		}
	}
	return nil
}

// awaitReady waits for all new generations at the same time: they may need each other.
func (c *change) awaitReady(ctx context.Context) error {
	errs := make([]error, len(c.links))
	var wg sync.WaitGroup
	for i, l := range c.links {
		if g := l.generation; g != nil {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, g.spec.StartTimeout)
				defer cancel()
				errs[i] = c.supervisor.awaitReady(ctx, g)
			})
		}
	}
	wg.Wait()
	for i, l := range c.links {
		errs[i] = c.tolerate(l, errs[i])
	}
	return errors.Join(errs...)
}

// tolerate takes the error of a stage that is not required and has never been up: it
// goes on to be tried in its new place.
func (c *change) tolerate(l *link, err error) error {
	if err == nil || l.added || l.spec.Required || l.stage.generation() != nil || l.spec.Name == c.swap {
		return err
	}
	if l.generation != nil {
		c.supervisor.discard(l.generation)
		l.generation = nil
	}
	l.stage.failed(err)
	l.stage.log.Error("stage is not required and has not come up, trying again", "error", err)
	return nil
}

// giveUp ends what was brought up.
func (c *change) giveUp(err error) {
	var wg sync.WaitGroup
	for _, l := range c.links {
		if !l.changing {
			continue
		}
		l.stage.swapEnded(SwapFailed, l.stage.generation().ID(), l.generation.ID(), err.Error(), 0)
		if l.generation != nil {
			wg.Go(func() { c.supervisor.discard(l.generation) })
		}
	}
	wg.Wait()
}
