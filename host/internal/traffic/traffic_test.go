package traffic

import (
	"math"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/host/internal/relay"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	last := -1
	for d := time.Duration(0); d < time.Minute; d = d*9/8 + time.Microsecond {
		i := bucketOf(d)
		if i < last || i >= buckets {
			t.Fatalf("%s is in bucket %d, what is shorter in %d", d, i, last)
		}
		last = i
		if off := math.Abs(float64(middle(i)-d)) / float64(d); d > 3*time.Microsecond && off > 0.126 {
			t.Errorf("the middle of the bucket of %s is %s, %.0f%% off", d, middle(i), 100*off)
		}
	}
	for _, d := range []time.Duration{-1, math.MaxInt64} {
		bucketOf(d) // does not panic below, and is the last bucket
	}
	if i := bucketOf(math.MaxInt64); i != buckets-1 {
		t.Errorf("bucket %d", i)
	}
}

func TestStages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New()
		go m.Run(t.Context())
		time.Sleep(10 * time.Second)
		for range 98 {
			m.Observe(relay.Hop{Stage: "core", Outcome: relay.Served, Status: http.StatusOK, Took: 10 * time.Millisecond})
		}
		m.Observe(relay.Hop{Stage: "core", Outcome: relay.Served, Status: http.StatusInternalServerError, Took: time.Second})
		m.Observe(relay.Hop{Stage: "core", From: "aggregator", Outcome: relay.NoResponse, Took: time.Hour})
		m.Observe(relay.Hop{Stage: "core", Outcome: relay.Replayed, Took: time.Hour})
		m.Observe(relay.Hop{Stage: "aggregator", Outcome: relay.Served, Took: time.Hour, Streams: true})
		got := m.Stages([]string{"aggregator", "core", "extensions"})
		for i := range got {
			got[i].P50, got[i].P99 = math.Round(got[i].P50*100)/100, math.Round(got[i].P99*10)/10
		}
		want := []Stage{
			{Stage: "aggregator", PerSecond: 0.1, From: []Hop{{PerSecond: 0.1}}},
			{Stage: "core", PerSecond: 10, FailedShare: 0.02, P50: 0.01, P99: 1, From: []Hop{{PerSecond: 9.9}, {From: "aggregator", PerSecond: 0.1}}},
			{Stage: "extensions"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		time.Sleep(2 * time.Minute)
		if got := m.Stages([]string{"core"}); !reflect.DeepEqual(got, []Stage{{Stage: "core"}}) {
			t.Errorf("what is long past counts: %+v", got)
		}
	})
}

func TestObserveAllocatesNothing(t *testing.T) {
	m := New()
	h := relay.Hop{Stage: "core", From: "aggregator", Outcome: relay.Served, Took: time.Millisecond}
	if n := testing.AllocsPerRun(100, func() { m.Observe(h) }); n > 0 {
		t.Errorf("%.0f allocations for a request", n)
	}
}
