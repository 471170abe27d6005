// Package e2e uses Catena as its users do: real processes, real clients, and the
// programs of Kubernetes unmodified.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	// timeout is how long what must happen may take on a busy machine. The controllers
	// look for new kinds every half minute, and sometimes need two attempts.
	timeout = 3 * time.Minute
	// patiently makes kubectl wait as long, and end before it is killed.
	patiently = "--timeout=170s"
	// patientRequests has kubectl wait as long for each response. For the OpenAPI document of v2, which the server merges when it is asked for
	// it, kubectl waits 32 seconds otherwise; it validates by that what cannot be patched.
	patientRequests = "--request-timeout=170s"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "catena-stage-fleet" {
		sdk.Main(fleetOf(os.Getenv(envFleetVersion)).Stage())
		return
	}
	// The tests wait more than they work; -parallel still has the last word.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	klog.SetLogger(logr.Discard()) // the kubelet's library reports every connection that ends
	code := m.Run()
	if err := stopShared(code != 0); err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

var stopShared = func(bool) error { return nil }

// startShared starts the cluster of all tests that leave it as it was.
var startShared = sync.OnceValues(func() (*system, error) {
	s, err := startSystem(context.Background(), cluster.Options{}, (*system).startControllers, (*system).startScheduler, (*system).startFirstNode)
	if err == nil {
		stopShared = s.stop
	}
	return s, err
})

func shared(t *testing.T) *system {
	t.Helper()
	s, err := startShared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually polls until the condition holds; its error says what is still missing.
func eventually(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}
