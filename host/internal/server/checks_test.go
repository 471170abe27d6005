package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// The host shows a check for the whole server because stages say so, whatever the names.
func TestServerChecks(t *testing.T) {
	t.Parallel()
	var broken string
	check := func(name, server string, required bool) lifecycle.Check {
		return lifecycle.Check{Name: name, ServerCheck: server, Readyz: true, Livez: name == "b/disk", Required: required, Run: func(context.Context) error {
			if name == broken {
				return errors.New("broken")
			}
			return nil
		}}
	}
	checks := withServerChecks([]lifecycle.Check{
		check("a/etcd", "", true), check("a/store", "storage", true), check("b/disk", "storage", true), check("c/disk", "storage", false), check("d/x", "alone", true),
	})
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
	}
	if want := []string{"a/etcd", "a/store", "b/disk", "c/disk", "d/x", "storage", "alone"}; !slices.Equal(names, want) {
		t.Fatalf("got %v, want %v", names, want)
	}
	storage := checks[5]
	if !storage.Required || !storage.Readyz || !storage.Livez || storage.Healthz {
		t.Errorf("got %+v", storage)
	}
	for name, want := range map[string]string{"": "<nil>", "b/disk": "b/disk: broken", "a/store": "a/store: broken", "c/disk": "<nil>", "d/x": "<nil>"} {
		broken = name
		if got := fmt.Sprint(storage.Run(t.Context())); got != want {
			t.Errorf("with %q broken: %s, want %s", name, got, want)
		}
	}
}
