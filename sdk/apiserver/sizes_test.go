package apiserver

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/catena-dev/catena/sdk"
)

// In a bubble of synctest, what is reported in a row comes at the same time.
func TestSizesAreReportedTogether(t *testing.T) { synctest.Test(t, testSizes) }

func testSizes(t *testing.T) {
	reports := make(chan []sdk.ResourceSize, 10)
	tracker := newSizeReporter(flowcontrolrequest.NewStorageObjectCountTracker(), func(sizes []sdk.ResourceSize) { reports <- sizes })
	tracker.Set("pods", storage.Stats{ObjectCount: 1})
	tracker.Set("pods", storage.Stats{ObjectCount: 2, EstimatedAverageObjectSizeBytes: 900})
	tracker.Set("deployments.apps", storage.Stats{ObjectCount: 3})
	next := func() []sdk.ResourceSize {
		select {
		case sizes := <-reports:
			slices.SortFunc(sizes, func(a, b sdk.ResourceSize) int { return int(a.Count - b.Count) })
			return sizes
		case <-time.After(10 * time.Second):
			t.Fatal("no report")
			return nil
		}
	}
	want := []sdk.ResourceSize{{Resource: "pods", Count: 2, ObjectBytes: 900}, {Resource: "deployments.apps", Count: 3}}
	if got := next(); !slices.Equal(got, want) {
		t.Errorf("report is %v, want %v", got, want)
	}
	tracker.Set("pods", storage.Stats{ObjectCount: 4})
	if got := next(); !slices.Equal(got, []sdk.ResourceSize{{Resource: "pods", Count: 4}}) {
		t.Errorf("second report is %v", got)
	}
	if stats, err := tracker.Get("pods"); err != nil || stats.ObjectCount != 4 {
		t.Errorf("the tracker itself has %v (%v)", stats, err)
	}
}
