package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/test/benchmark/internal/figure"
	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

const (
	// restListed, restDeleted and restWatchers are how much the heavy requests ask for.
	restListed   = 5000
	restDeleted  = 1000
	restWatchers = 1000
	// collected is the label of objects that are deleted together.
	collected = "collected"
)

// afterRest is a row with a single heavy request to a system that has been at rest, and the same once more.
type afterRest struct {
	name string
	// prepare returns a function that makes the request, each time that it is called.
	prepare func(context.Context, *system) (heavyRequest, error)
}

// heavyRequest makes a request and returns how long it has taken.
type heavyRequest func(context.Context) (time.Duration, error)

func restRows() []afterRest {
	return []afterRest{
		{fmt.Sprintf("LIST %d after rest", restListed), prepareList},
		{fmt.Sprintf("DELETE %d after rest", restDeleted), prepareDelete},
		{fmt.Sprintf("event of %d watchers after rest", restWatchers), prepareEvent},
	}
}

// afterRests measures heavy requests to systems that have had nothing to do for -rest.
func (c *comparison) afterRests(ctx context.Context) error {
	p, err := c.startPair(ctx, "rest", 0)
	if err != nil {
		return err
	}
	defer p.stop()
	for _, s := range p {
		if err := s.seedConfigMaps(ctx, restListed); err != nil {
			return fmt.Errorf("seed %s: %w", s.Name, err)
		}
	}
	for round := range c.rounds {
		for _, row := range restRows() {
			if !c.wants(row.name) {
				continue
			}
			if err := c.measureAfterRest(ctx, p, row, round); err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
		}
	}
	return nil
}

func (c *comparison) measureAfterRest(ctx context.Context, p *pair, row afterRest, round int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var requests [2]heavyRequest
	for side, s := range p {
		var err error
		if requests[side], err = row.prepare(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	if err := idle(ctx, p[figure.A], p[figure.B]); err != nil {
		return err
	}
	if err := sleep(ctx, c.rest); err != nil {
		return err
	}
	for _, side := range order(round) {
		for _, name := range []string{"first, ms", "next, ms"} {
			took, err := requests[side](ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", p[side].Name, err)
			}
			c.add(side, row.name, name, milliseconds(took))
		}
	}
	return nil
}

func prepareList(_ context.Context, s *system) (heavyRequest, error) {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		url := s.clients[0].URL + "/api/v1/namespaces/" + namespace + "/configmaps"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, err
		}
		resp, err := s.clients[0].HTTP.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("want OK, have %s", resp.Status)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return time.Since(began), err
	}, nil
}

// prepareDelete creates what two requests delete.
func prepareDelete(ctx context.Context, s *system) (heavyRequest, error) {
	var sets []string
	for range 2 {
		set := s.unique("set")
		sets = append(sets, set)
		var next atomic.Int64
		_, err := load.Run(ctx, s.clients, inFlight, restDeleted, func(ctx context.Context, c *load.Client) error {
			object := configMap(fmt.Sprintf("%s-%d", set, next.Add(1)))
			object.Labels = map[string]string{collected: set}
			_, err := c.Proto.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) (time.Duration, error) {
		set := sets[0]
		sets = sets[1:]
		began := time.Now()
		err := s.clients[0].Proto.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: collected + "=" + set})
		return time.Since(began), err
	}, nil
}

// prepareEvent opens watches, until ctx ends.
func prepareEvent(ctx context.Context, s *system) (heavyRequest, error) {
	f, err := s.openFanOut(ctx, restWatchers)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		if err := f.change(ctx); err != nil {
			return 0, err
		}
		_, err := f.await(restWatchers)
		return time.Since(began), err
	}, nil
}
