package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// GatherMetrics writes the metrics of a stage's current generation, in Prometheus' text
// format 0.0.4. A stage that does not know of metrics has none.
func (s *Supervisor) GatherMetrics(ctx context.Context, name string, w io.Writer) error {
	st, err := s.stage(name)
	if err != nil {
		return err
	}
	g := st.generation()
	if g == nil {
		return fmt.Errorf("stage %q is not running", name)
	}
	if state := g.machine.State(); state != lifecycle.Serving && state != lifecycle.Draining {
		return fmt.Errorf("stage %q is %s", name, state)
	}
	return g.gatherMetrics(ctx, w)
}

func (g *generation) gatherMetrics(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if w takes no more
	defer cancel()
	stream, err := g.proc.Client().GatherMetrics(ctx, &stagev1.GatherMetricsRequest{})
	if err != nil {
		return err
	}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Unimplemented {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(piece.GetText()); err != nil {
			return err
		}
	}
}
