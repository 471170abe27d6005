package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"

	"github.com/catena-dev/catena/host/internal/panics"
)

// bounded gathers what another gatherer has within a timeout. One that hangs is not called again before it has returned.
type bounded struct {
	from    prometheus.Gatherer
	timeout time.Duration
	calls   singleflight.Group
}

// Gather implements prometheus.Gatherer. It has one caller at a time, who may change what it returns.
func (b *bounded) Gather() ([]*dto.MetricFamily, error) {
	call := b.calls.DoChan("", func() (any, error) {
		var gathered []*dto.MetricFamily
		err := panics.Call(func() (err error) {
			gathered, err = b.from.Gather()
			return err
		})
		return gathered, err
	})
	late := time.NewTimer(b.timeout)
	defer late.Stop()
	select {
	case result := <-call:
		return result.Val.([]*dto.MetricFamily), result.Err
	case <-late.C:
		return nil, fmt.Errorf("a collector has not returned within %s", b.timeout)
	}
}
