package lifecycle

import "context"

// Member is a stage as Build drives it. R is what a stage reports of itself, such
// as its paths, for those upstream of it. The errors name the stage.
type Member[R any] interface {
	// Name is the stage's name in the chain.
	Name() string
	// Configure makes the stage build its handler. Downstream holds the reports of
	// the stages downstream of it, the nearest first.
	Configure(ctx context.Context, downstream []Report[R]) (R, error)
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
func Build[R any](ctx context.Context, chain []Member[R]) error {
	var downstream []Report[R]
	for i := len(chain) - 1; i >= 0; i-- {
		report, err := chain[i].Configure(ctx, downstream)
		if err != nil {
			return err
		}
		downstream = append([]Report[R]{{Stage: chain[i].Name(), Report: report}}, downstream...)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		if err := chain[i].PrepareRun(ctx); err != nil {
			return err
		}
	}
	return nil
}
