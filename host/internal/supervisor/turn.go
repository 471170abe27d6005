package supervisor

import "context"

// turn is a lock that one can give up waiting for.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// try takes the turn if it is free.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait takes the turn when it is free, or returns the reason why ctx has ended.
func (t turn) wait(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) done() { <-t }
