package supervisor

import (
	"context"
	"fmt"
	"slices"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Trial is a process of a stage that is up beside the one that serves, and gets no requests but those of its user. Its
// post-start hooks have not run, so that it has written nothing.
type Trial struct {
	stage      *stage
	generation *generation.Generation
	// Serving describes the process that serves; it may be nil.
	Serving *stagev1.DescribeResponse
}

// Try brings up a trial of a stage, whose Spec change changes, up to PrepareRun, in an operation that the caller has
// begun. If the process describes itself and does not come up, the trial is there beside the error.
func (s *Supervisor) Try(ctx context.Context, name string, change func(*Spec) error) (*Trial, error) {
	if !s.begin() {
		return nil, errStopping
	}
	defer s.running.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.background, func() { cancel(errStopping) })()
	r := s.rolloutOf()
	var tried *member
	var names []string
	for _, m := range r.members {
		if names = append(names, m.spec.Name); m.spec.Name == name {
			tried = m
		}
	}
	if tried == nil {
		return nil, notInChain(name, names)
	}
	if tried.spec.Attach != "" {
		return nil, fmt.Errorf("stage %q: %w", name, errAttached)
	}
	t := &Trial{stage: tried.stage}
	held := s.lock()
	if g := tried.stage.guarded.current(); g != nil {
		t.Serving = g.Description()
	}
	held.unlock()
	tried.spec.Process = tried.spec.Process.Clone()
	if err := change(&tried.spec); err != nil {
		return nil, err
	}
	tried.launching = true
	err := r.run(ctx)
	if t.generation = tried.generation; t.generation == nil {
		return nil, err
	}
	return t, err
}

// Description is what the process of a stage describes itself as; nil if there is no process.
func (s *Supervisor) Description(name string) (*stagev1.DescribeResponse, error) {
	held := s.lock()
	defer held.unlock()
	st, err := held.stage(name)
	if err != nil {
		return nil, err
	}
	if g := st.guarded.current(); g != nil {
		return g.Description(), nil
	}
	return nil, nil
}

// Description is what the process describes itself as.
func (t *Trial) Description() *stagev1.DescribeResponse { return t.generation.Description() }

// Flags are those of the API server that the process gets, each as name=value.
func (t *Trial) Flags() ([]string, error) { return t.generation.Flags() }

// Socket is the data socket of the process.
func (t *Trial) Socket() string { return t.generation.Listener().Path() }

// HasHook reports whether the process has a post-start hook of that name.
func (t *Trial) HasHook(name string) bool {
	return slices.Contains(t.generation.PostStartHooks(), name)
}

// RunHook runs a post-start hook of the process.
func (t *Trial) RunHook(ctx context.Context, name string) error {
	return t.generation.RunPostStartHook(ctx, name)
}

// Done is closed when the process has ended, and Err then says how.
func (t *Trial) Done() <-chan struct{} { return t.generation.Done() }

// Err is nil while the process runs.
func (t *Trial) Err() error { return t.generation.Err() }

// Close ends the process.
func (t *Trial) Close() { t.stage.live(t.generation).dismiss("its trial is over") }
