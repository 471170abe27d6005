package lifecycle

import "context"

// Link is a stage as Build drives it. R is what a stage reports of itself, such
// as its paths, for the stages in front of it. The errors name the stage.
type Link[R any] interface {
	// Name is the stage's name in the chain.
	Name() string
	// Configure makes the stage build its handler. Behind holds the reports of
	// the stages behind it, the nearest first.
	Configure(ctx context.Context, behind []Report[R]) (R, error)
	// PrepareRun finishes what needs every stage to be configured.
	PrepareRun(ctx context.Context) error
}

// Report is what the stage of that name reported when it was configured.
type Report[R any] struct {
	Stage  string
	Report R
}

// Build configures the stages of a chain, given from head to tail, one after the
// other from the tail to the head, and then prepares them in the same order:
// delegates first, as kube-apiserver's CreateServerChain and PrepareRun do. It
// stops at the first error and returns it as it is.
func Build[R any](ctx context.Context, chain []Link[R]) error {
	var behind []Report[R]
	for i := len(chain) - 1; i >= 0; i-- {
		report, err := chain[i].Configure(ctx, behind)
		if err != nil {
			return err
		}
		behind = append([]Report[R]{{Stage: chain[i].Name(), Report: report}}, behind...)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		if err := chain[i].PrepareRun(ctx); err != nil {
			return err
		}
	}
	return nil
}
