package sdk_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// What leads has a context that ends when the stage drains, and Lead says how it has ended.
func TestLead(t *testing.T) {
	t.Parallel()
	began, ended, failed := make(chan struct{}), make(chan error, 1), errors.New("failed")
	stage := stagetest.Start(t, sdk.Stage{Name: "leader", New: func(env *sdk.Env) (http.Handler, error) {
		env.PostStartHook("work", func(ctx context.Context) error {
			if err := env.Lead(ctx, "other", func(context.Context) error { return failed }); !errors.Is(err, failed) {
				t.Errorf("a lead that has failed: %v", err)
			}
			go func() {
				ended <- env.Lead(ctx, "work", func(ctx context.Context) error {
					close(began)
					<-ctx.Done()
					return ctx.Err()
				})
			}()
			return nil
		})
		return env.Next, nil
	}}, stagetest.Options{})
	stage.RunPostStartHooks(t)
	<-began
	stage.Drain(t, 0)
	if err := <-ended; err != nil {
		t.Errorf("a lead that ends with the stage: %v", err)
	}
}

// A test ends also if the stage does not stop what it leads.
func TestDeafLeader(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	stage := stagetest.Start(t, sdk.Stage{Name: "leader", New: func(env *sdk.Env) (http.Handler, error) {
		env.PostStartHook("work", func(ctx context.Context) error {
			go func() {
				_ = env.Lead(ctx, "work", func(context.Context) error {
					close(began)
					<-release
					return nil
				})
			}()
			return nil
		})
		return env.Next, nil
	}}, stagetest.Options{})
	stage.RunPostStartHooks(t)
	<-began
}
