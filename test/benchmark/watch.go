package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/test/benchmark/internal/figure"
	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

const (
	rowWatch = "watch"
	// watched is the object of which the watchers get events.
	watched = "watched"
	// eventTimeout is the longest time for which an event may be missing.
	eventTimeout = time.Minute
)

// changesFor returns how many changes make enough events for a figure, with a number of watchers.
func changesFor(watchers int) int { return min(max(10000/watchers, 20), 500) }

// measureWatch adds what events cost one system, as fast as changes are made, and then how long
// a single one takes.
func (c *comparison) measureWatch(ctx context.Context, side figure.Side, s *system) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	row, changes := fmt.Sprintf("%s, %d watchers", rowWatch, c.watchers), changesFor(c.watchers)
	f, err := s.openFanOut(ctx, c.watchers)
	if err != nil {
		return err
	}
	cpu, took, err := f.burst(ctx, changes)
	if err != nil {
		return err
	}
	events := float64(c.watchers * changes)
	c.add(side, row, "CPU, µs per event", float64(cpu.Microseconds())/events)
	c.addRate(side, row, "events per second", events/took.Seconds())
	latencies, err := f.singles(ctx, 20)
	if err != nil {
		return err
	}
	c.addLatency(side, row+", a single event", latencies)
	return nil
}

// fanOut is a number of watches of one object.
type fanOut struct {
	*system
	watchers int
	events   <-chan time.Time // when a watcher got an event
	ended    <-chan error     // why a watch has ended
}

// openFanOut opens watches over all connections, until ctx ends.
func (s *system) openFanOut(ctx context.Context, watchers int) (*fanOut, error) {
	selector := "metadata.name=" + watched
	list, err := s.clients[0].JSON.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/configmaps?watch=1&fieldSelector=%s&resourceVersion=%s",
		namespace, url.QueryEscape(selector), list.ResourceVersion)
	events, ended := make(chan time.Time, watchers), make(chan error, watchers)
	for i := range watchers {
		stream, err := s.clients[i%len(s.clients)].Watch(ctx, path)
		if err != nil {
			return nil, err
		}
		go func() { ended <- load.Events(ctx, stream, events) }()
	}
	return &fanOut{s, watchers, events, ended}, nil
}

func (f *fanOut) change(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, f.serial.Add(1))
	_, err := f.clients[0].JSON.CoreV1().ConfigMaps(namespace).Patch(ctx, watched, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// await waits until n events have come, and returns when they came.
func (f *fanOut) await(n int) ([]time.Time, error) {
	var at []time.Time
	timeout := time.NewTimer(eventTimeout)
	defer timeout.Stop()
	for len(at) < n {
		select {
		case t := <-f.events:
			at = append(at, t)
			timeout.Reset(eventTimeout)
		case err := <-f.ended:
			return nil, fmt.Errorf("a watch has ended after %d of %d events: %w", len(at), n, err)
		case <-timeout.C:
			return nil, fmt.Errorf("%d of %d events have come", len(at), n)
		}
	}
	return at, nil
}

// burst changes the object several times without a pause, and returns what that took until all watchers
// had all events.
func (f *fanOut) burst(ctx context.Context, changes int) (cpu, took time.Duration, err error) {
	before, began := f.CPU(), time.Now()
	changed := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < changes && err == nil; i++ {
			err = f.change(ctx)
		}
		changed <- err
	}()
	_, err = f.await(f.watchers * changes)
	if err == nil {
		err = <-changed
	}
	return f.CPU() - before, time.Since(began), err
}

// singles changes the object n times, each when all watchers have the event before, and returns
// the sorted times from the request to each of the events.
func (f *fanOut) singles(ctx context.Context, n int) ([]time.Duration, error) {
	var all []time.Duration
	for range n {
		sent := time.Now()
		if err := f.change(ctx); err != nil {
			return nil, err
		}
		at, err := f.await(f.watchers)
		if err != nil {
			return nil, err
		}
		for _, t := range at {
			all = append(all, t.Sub(sent))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no events")
	}
	slices.Sort(all)
	return all, nil
}
