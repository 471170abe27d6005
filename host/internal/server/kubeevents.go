package server

import (
	"context"
	"os"
	"slices"
	"strings"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/kubeevents"
	"github.com/catena-dev/catena/host/internal/local"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// wantsEvents reports whether Events are written. kube-apiserver writes none.
func (r *run) wantsEvents() bool {
	on := r.Config.KubernetesEvents
	return on == config.EventsOn || on == config.EventsAuto && r.Config.APIServerDefaults != config.KubernetesDefaults
}

// openEvents makes what writes Events of Kubernetes, if the configuration wants them.
func (r *run) openEvents() error {
	if !r.wantsEvents() {
		return nil
	}
	client, err := typedcorev1.NewForConfigAndClient(local.NewClient(r.front).Config(kubeevents.Controller))
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	r.kubeEvents = kubeevents.New(client, strings.ToLower(name))
	return nil
}

// writeEvents writes them until ctx ends, as long as a stage serves Events.
func (r *run) writeEvents(ctx context.Context) {
	if r.kubeEvents != nil {
		r.kubeEvents.Run(ctx, func() bool { return slices.Contains(r.chain.listedPaths(), "/api/v1") })
	}
}

// kubeEvent returns the Event of Kubernetes for an event, if there is to be one.
func kubeEvent(e supervisor.Event) (kubeevents.Event, bool) {
	row, told := rowOf(e)
	if !told || row.reason == "" {
		return kubeevents.Event{}, false
	}
	return kubeevents.Event{Stage: e.Stage, At: e.At, Reason: row.reason, Message: row.message(e), Warning: row.bad}, true
}

// recordReload keeps the result of a reload, and makes an Event of Kubernetes of it.
func (r *run) recordReload(result *admin.Reload) {
	r.history.add(reloaded(result))
	e := kubeevents.Event{Reason: "ConfigurationReloaded", Message: "configuration " + result.String(), At: result.At}
	if result.Error != "" {
		e.Reason, e.Warning = "ReloadFailed", true
	}
	r.kubeEvents.Record(e)
}
