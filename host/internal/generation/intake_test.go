package generation

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// event is one with claims of n paths, the first of which is path.
func eventOf(path string, n int) *stagev1.Event {
	claims := make([]*stagev1.Claim, n)
	for i := range claims {
		claims[i] = &stagev1.Claim{Path: path}
	}
	return &stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{Claims: claims}}
}

// Events that come fast are taken in ten times a second at most: of claims the latest counts, and no signal or size is lost.
func TestFastEventsAreMerged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sent = 5000
		began, taken := time.Now(), []time.Duration{}
		signals, sizes, claims := map[string]bool{}, 0, ""
		in := intake{take: func(e *stagev1.Event) {
			taken = append(taken, time.Since(began))
			for _, s := range e.GetSignaled() {
				signals[s] = true
			}
			sizes += len(e.GetResourceSizes())
			claims = e.GetClaimsChanged().GetClaims()[0].GetPath()
		}}
		received := make(chan *stagev1.Event)
		go func() {
			defer close(received)
			for i := range sent {
				e := eventOf(fmt.Sprintf("/%d", i), 1)
				e.Signaled = []string{fmt.Sprint(i)}
				e.ResourceSizes = []*stagev1.ResourceSize{{Resource: "x"}}
				received <- e
			}
		}()
		if got := in.all(t.Context(), received); got != sent {
			t.Errorf("%d events came", got)
		}
		if len(signals) != sent || sizes != sent || claims != fmt.Sprintf("/%d", sent-1) {
			t.Errorf("%d signals, %d sizes, claims %s", len(signals), sizes, claims)
		}
		if want := sent/bounds.Events + 1; len(taken) > want || taken[0] != 0 {
			t.Errorf("taken in %d times, want %d, the first one at once: %s", len(taken), want, taken[0])
		}
		for i := range taken[:len(taken)-1] { // what is left at the end of the stream is not waited for
			if pause := taken[i] - taken[max(0, i-1)]; i > 0 && pause < bounds.EventPause {
				t.Errorf("taken in after %s", pause)
			}
		}
	})
}

// Taking events in takes a part of the time, however long it takes, also if the stage ends its stream after each of them.
func TestSlowEventsArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy, began := time.Duration(0), time.Now()
		in := intake{take: func(*stagev1.Event) {
			time.Sleep(time.Second)
			busy += time.Second
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		received := make(chan *stagev1.Event)
		go func() {
			for ctx.Err() == nil {
				select {
				case received <- eventOf("/a", 1):
				case <-ctx.Done():
				}
			}
		}()
		in.all(ctx, received)
		if total := time.Since(began); busy < total/(bounds.EventShare+1) || busy > total/bounds.EventShare+time.Second {
			t.Errorf("%s of %s", busy, total)
		}
		if time.Until(in.next) < 0 {
			t.Error("the next stream need not wait")
		}
	})
}

// A stage that sends large events is not read from for a while.
func TestEventsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	var m merged
	for n := 1; !m.full(); n++ {
		m.add(eventOf("/a", bounds.Claims))
		if n > 3 {
			t.Fatalf("%d events with %d claims each wait", n, bounds.Claims)
		}
	}
	m = merged{}
	for n := 1; !m.full(); n++ {
		m.add(&stagev1.Event{})
		if n > bounds.Events {
			t.Fatalf("%d empty events wait", n)
		}
	}
}
