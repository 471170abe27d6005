package system

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "catena-stage-"); ok {
		runStage(name)
		return
	}
	// The tests wait more than they work; -parallel still has the last word.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := stopShared(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shared holds the servers that several tests use. They are started at the first need
// and stopped at the end, the latest first.
var shared struct {
	mu    sync.Mutex
	stops []func(failed bool) error
}

func onStop(stop func(failed bool) error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.stops = append(shared.stops, stop)
}

func stopShared(failed bool) error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, stop := range slices.Backward(shared.stops) {
		errs = append(errs, stop(failed))
	}
	return errors.Join(errs...)
}

// catena starts a Catena that ends with the test.
func catena(t *testing.T, o cluster.Options) *cluster.Catena {
	t.Helper()
	c, err := cluster.StartCatena(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// kubeAPIServer is the kube-apiserver with which answers are compared.
var kubeAPIServer = sync.OnceValues(func() (*audited, error) {
	dir, err := os.MkdirTemp("", "system")
	if err != nil {
		return nil, err
	}
	onStop(func(bool) error { return os.RemoveAll(dir) })
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	s, err := cluster.StartKubeAPIServer(context.Background(), cluster.Options{
		Flags: map[string]string{"audit-policy-file": policy, "audit-log-path": log},
	})
	if err == nil {
		onStop(s.Stop)
	}
	return &audited{s, log}, err
})

// patience is how long a condition may take to come true on a busy machine.
const patience = 2 * time.Minute

// eventually waits for a condition. Explain is called if it does not come true.
func eventually(t *testing.T, what string, ok func() bool, explain ...func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, f := range explain {
				t.Log(f())
			}
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// write makes a file in a directory of the test's own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
