package stagecheck

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/catena-dev/catena/host/internal/metrics"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// checkMetrics reads the metrics as the host does.
func checkMetrics(ctx context.Context, s *suite) error {
	st, err := s.prepared(ctx)
	if err != nil {
		return err
	}
	text, err := gather(ctx, st)
	if unimplemented(err) {
		return skip("the stage has no metrics")
	}
	if err != nil {
		return want("metrics, or UNIMPLEMENTED, from GatherMetrics", "%s", reason(err))
	}
	if err := metrics.Check(strings.NewReader(text)); err != nil {
		return want("metrics in Prometheus' text format 0.0.4, with names that do not begin with catena_ and no series twice", "%v", err)
	}
	return nil
}

func gather(ctx context.Context, st *stage) (string, error) {
	stream, err := st.rpc.GatherMetrics(ctx, &stagev1.GatherMetricsRequest{})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text.String(), nil
		}
		if err != nil {
			return "", err
		}
		text.Write(piece.GetText())
	}
}
