package server

import (
	"os"
	"strings"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/kubeevents"
	"github.com/catena-dev/catena/host/internal/local"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// wantsEvents reports whether Events are written. kube-apiserver writes none.
func wantsEvents(cfg *config.Config) bool {
	on := cfg.KubernetesEvents
	return on == config.EventsOn || on == config.EventsAuto && cfg.APIServerDefaults != config.KubernetesDefaults
}

// newRecorder returns what writes Events of Kubernetes; nil if the configuration wants none.
func newRecorder(cfg *config.Config, f *front.Frontend) (*kubeevents.Recorder, error) {
	if !wantsEvents(cfg) {
		return nil, nil
	}
	client, err := typedcorev1.NewForConfigAndClient(local.NewClient(f).Config(kubeevents.Controller))
	if err != nil {
		return nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return kubeevents.New(client, strings.ToLower(name)), nil
}

// kubeEvent returns the Event of Kubernetes for an event, if there is to be one.
func kubeEvent(e supervisor.Event) (kubeevents.Event, bool) {
	row, told := rowOf(e)
	if !told || row.reason == "" {
		return kubeevents.Event{}, false
	}
	return kubeevents.Event{Stage: e.Stage, At: e.At, Reason: row.reason, Message: row.message(e), Warning: row.bad}, true
}
