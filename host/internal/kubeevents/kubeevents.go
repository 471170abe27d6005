// Package kubeevents writes what happens to the stages of a host as Events of Kubernetes, for those who
// look at a cluster with kubectl.
package kubeevents

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const (
	// Namespace is that of the Events.
	Namespace = metav1.NamespaceSystem
	// Controller is what reports them.
	Controller = "catena.dev/host"

	apiVersion = "catena.dev/v1alpha1"
	// waiting is how many Events wait to be written; more are dropped.
	waiting = 64
	// writeTimeout bounds the only attempt to write one. A stage that is restarted is back by then.
	writeTimeout = 20 * time.Second
	// maxMessage is the length of the longest message that Kubernetes accepts.
	maxMessage = 1024
	// burst is how many Events of one stage are written at once; after that, one in refill seconds.
	burst, refill = 25, 60
)

// Event is something that has happened.
type Event struct {
	// Stage is empty if it has happened to the host.
	Stage string
	// Warning reports whether it is nothing that should happen.
	Warning bool
	Reason  string
	// Message should not differ each time: equal Events are one, with a count.
	Message string
	At      time.Time
}

// Recorder writes Events, those of the same kind as one with a count, as Kubernetes' components do. Events
// that cannot be written are dropped.
type Recorder struct {
	host    string
	events  typedcorev1.EventInterface
	queue   chan Event
	related *record.EventCorrelator
}

// New returns a recorder for the host with a name. It writes nothing before Run.
func New(client typedcorev1.EventsGetter, host string) *Recorder {
	return &Recorder{
		host: host, events: client.Events(Namespace), queue: make(chan Event, waiting),
		related: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{BurstSize: burst, QPS: 1. / refill}),
	}
}

// Record takes an Event, which happens now unless it says when, and never waits. A nil Recorder takes none.
func (r *Recorder) Record(e Event) {
	if r == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	select {
	case r.queue <- e:
	default:
	}
}

// Run writes Events until ctx ends. Those that come while ready returns false are dropped.
func (r *Recorder) Run(ctx context.Context, ready func() bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.queue:
			if ready() {
				r.write(ctx, e)
			}
		}
	}
}

// write makes one attempt. An error has no reader: what has happened is in the log.
func (r *Recorder) write(ctx context.Context, e Event) {
	result, err := r.related.EventCorrelate(r.object(e))
	if err != nil || result.Skip {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var written *corev1.Event
	if result.Event.Count > 1 {
		written, err = r.events.Patch(ctx, result.Event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
	}
	if result.Event.Count <= 1 || err != nil { // the Event may have expired
		result.Event.ResourceVersion = ""
		written, err = r.events.Create(ctx, result.Event, metav1.CreateOptions{})
	}
	if err == nil {
		r.related.UpdateState(written)
	}
}

func (r *Recorder) object(e Event) *corev1.Event {
	kind, name := "Stage", e.Stage
	if name == "" {
		kind, name = "Host", r.host
	}
	level := corev1.EventTypeNormal
	if e.Warning {
		level = corev1.EventTypeWarning
	}
	at := metav1.NewTime(e.At)
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", name, e.At.UnixNano()), Namespace: Namespace},
		InvolvedObject:      corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Name: name, Namespace: Namespace},
		Reason:              e.Reason,
		Message:             strings.ToValidUTF8(e.Message[:min(len(e.Message), maxMessage)], ""),
		Type:                level,
		Count:               1,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Source:              corev1.EventSource{Component: Controller, Host: r.host},
		ReportingController: Controller,
		ReportingInstance:   r.host,
	}
}
