package supervisor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// Start launches all stages in parallel, has them check their configurations, then
// configures them from the tail to the head and prepares them in the same order. A
// stage that is prepared is published, so that those in front of it can call it,
// and reported to up. An error names the stage; what was started keeps running
// until Stop. A stage that is not required and does not come up is no error: it is
// tried again in the background.
func (s *Supervisor) Start(ctx context.Context, up func(stage, version string, pid int, took time.Duration)) error {
	began := time.Now()
	starts := s.launchAll(ctx)
	if err := validateConfigs(ctx, starts); err != nil {
		return err
	}
	links := make([]lifecycle.Link[report], len(starts))
	for i, f := range starts {
		f.up = func(g *generation) { up(f.Name(), g.proc.Description().GetVersion(), g.proc.PID(), time.Since(began)) }
		links[i] = f
	}
	if err := lifecycle.Build(ctx, links); err != nil {
		return err
	}
	for _, f := range starts {
		if f.err != nil {
			s.running.Go(func() { s.restart(f.stage, nil, 0) })
		} else {
			s.renewStandby(f.stage)
		}
	}
	return nil
}

// firstStart is a stage on its way to its first generation, which serves as soon as it
// is prepared.
type firstStart struct {
	supervisor *Supervisor
	stage      *stage
	generation *generation
	// err is why a stage that is not required has not come up.
	err error
	up  func(*generation)
}

// launchAll starts the first process of each stage.
func (s *Supervisor) launchAll(ctx context.Context) []*firstStart {
	starts := make([]*firstStart, len(s.chain()))
	var wg sync.WaitGroup
	for i, st := range s.chain() {
		f := &firstStart{supervisor: s, stage: st}
		starts[i] = f
		wg.Go(func() {
			l, err := s.listen(st.present())
			if err == nil {
				f.generation, err = s.launch(ctx, st, st.present(), l)
			}
			if err != nil && l != nil {
				err = errors.Join(err, s.close(l))
			}
			f.err = err
		})
	}
	wg.Wait()
	return starts
}

// validateConfigs has each stage check its own configuration, so that the mistakes
// in all of them are told at once, before any is configured.
func validateConfigs(ctx context.Context, starts []*firstStart) error {
	var errs []error
	for _, f := range starts {
		err := f.err
		if err == nil {
			err = f.generation.validateConfig(ctx)
		}
		errs = append(errs, f.optional(ctx, err))
	}
	return errors.Join(errs...)
}

// optional takes note of why the stage does not come up, and returns the error if the
// server is not to start without it.
func (f *firstStart) optional(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || f.stage.present().Required {
		return err
	}
	if f.generation != nil {
		f.supervisor.discard(f.generation)
		f.generation = nil
	}
	f.err = err
	f.stage.failed(err)
	f.stage.log.Error("stage is not required and has not come up, trying again", "error", err)
	f.supervisor.publish()
	return nil
}

// Name implements lifecycle.Link.
func (f *firstStart) Name() string { return f.stage.name }

// Configure implements lifecycle.Link.
func (f *firstStart) Configure(ctx context.Context, behind []lifecycle.Report[report]) (report, error) {
	if f.err != nil {
		return report{}, nil
	}
	r, err := f.generation.Configure(ctx, behind)
	return r, f.optional(ctx, err)
}

// PrepareRun implements lifecycle.Link.
func (f *firstStart) PrepareRun(ctx context.Context) error {
	if f.err != nil {
		return nil
	}
	s, g := f.supervisor, f.generation
	err := g.PrepareRun(ctx)
	if err == nil {
		s.follow(g)
		err = s.take(g)
	}
	if err != nil {
		return f.optional(ctx, err)
	}
	s.publish()
	f.up(g)
	return nil
}

// follow begins to take in what a prepared generation reports, and to tell it of the
// server's signals.
func (s *Supervisor) follow(g *generation) {
	s.running.Go(func() { g.watch(s.background, s.event) })
	s.running.Go(func() { s.tell(g) })
}
