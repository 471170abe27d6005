package server

import (
	"context"
	"slices"

	"github.com/hashicorp/go-hclog"
	flowcontrolv1 "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"

	"github.com/catena-dev/catena/host/internal/fairness"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/kubeevents"
	"github.com/catena-dev/catena/host/internal/local"
)

// newLevel returns the priority level of what stages ask for in their own name.
func newLevel(f *front.Frontend, log hclog.Logger) (*fairness.Level, error) {
	client, err := flowcontrolv1.NewForConfigAndClient(local.NewClient(f).Config(kubeevents.Controller))
	if err != nil {
		return nil, err
	}
	return fairness.New(client, log), nil
}

// makeLevel makes it while a stage of the chain serves such.
func makeLevel(ctx context.Context, level *fairness.Level, chain *chainState) {
	select {
	case <-chain.front.Ready():
		level.Run(ctx, func() bool {
			return slices.Contains(chain.listedPaths(), "/apis/flowcontrol.apiserver.k8s.io/v1")
		})
	case <-ctx.Done():
	}
}
