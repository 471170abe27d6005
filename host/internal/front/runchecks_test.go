package front

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// Checks run at once: each of these takes as long as the others need to begin. The first that fails counts.
func TestRunChecks(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var begun sync.WaitGroup
	begun.Add(3)
	all := make(chan struct{})
	go func() {
		begun.Wait()
		close(all)
	}()
	check := func(name string, err error) lifecycle.Check {
		return lifecycle.Check{Name: name, Run: func(ctx context.Context) error {
			begun.Done()
			select {
			case <-all:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
	}
	err := RunChecks(ctx, []lifecycle.Check{check("a", nil), check("b", errors.New("fails")), check("c", errors.New("fails too"))})
	if err == nil || err.Error() != "b: fails" {
		t.Errorf("got %v", err)
	}
	err = RunChecks(ctx, []lifecycle.Check{{Name: "d", Run: func(context.Context) error { panic("x") }}})
	if err == nil || !strings.HasPrefix(err.Error(), "d: panic: x") {
		t.Errorf("got %v", err)
	}
	if err := RunChecks(ctx, nil); err != nil {
		t.Error(err)
	}
}
