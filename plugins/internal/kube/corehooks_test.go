package kube

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

// hosts are what the requests are sent to. Each gets a response.
type hosts []string

func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	*h = append(*h, r.URL.Host)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// A hook that is begun early makes no request before it is due, and its result is that of the hook. One that has failed by then is run again.
func TestEarlyHook(t *testing.T) {
	t.Parallel()
	late := errors.New("late")
	for name, tc := range map[string]struct {
		results []error // of the hook, each time that it runs
		want    error
	}{
		"succeeds": {results: []error{nil}},
		"again":    {results: []error{late, nil}},
		"fails":    {results: []error{late, context.Canceled}, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var requests hosts
				runs := 0
				hook := func(ctx genericapiserver.PostStartHookContext) error {
					client, err := rest.HTTPClientFor(ctx.LoopbackClientConfig)
					if err != nil {
						return err
					}
					if _, err := client.Get("http://server/"); err != nil {
						return err
					}
					runs++
					return tc.results[runs-1]
				}
				config := &rest.Config{Host: "http://catena", Transport: &requests}
				early := beginHook("", "", hook)
				synctest.Wait()
				if len(requests) != 0 {
					t.Errorf("%d requests before the hook was due", len(requests))
				}
				if err := early.run(genericapiserver.PostStartHookContext{Context: t.Context(), LoopbackClientConfig: config}); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if len(requests) != len(tc.results) || requests[0] != "catena" {
					t.Errorf("requests to %q, want %d, the first to the server of the configuration", requests, len(tc.results))
				}
			})
		})
	}
}

// One that has panicked by the time that it is due is run again, where a panic is what it is for other hooks.
func TestEarlyHookPanics(t *testing.T) {
	t.Parallel()
	runs := 0
	early := beginHook("", "", func(genericapiserver.PostStartHookContext) error {
		if runs++; runs == 1 {
			panic("a mistake")
		}
		return nil
	})
	if err := early.run(genericapiserver.PostStartHookContext{LoopbackClientConfig: &rest.Config{}}); err != nil || runs != 2 {
		t.Errorf("%v after %d runs", err, runs)
	}
}

// The hooks begin when the stage's flags are checked, unless these are wrong.
func TestEarlyHooksBegin(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]bool{"authorization-mode=Node,RBAC": true, "secure-prt=1": false} {
		begun := false
		hooks := &earlyHooks{begin: func() ([]*earlyHook, error) {
			begun = true
			return nil, nil
		}}
		hooks.validate(nil, []string{"secure-port=6443", flag})
		if begun != want {
			t.Errorf("with the flag %s, the hooks begin: %v", flag, begun)
		}
	}
}

// Flags on which the roles depend are global: they are not parsed here.
func TestSetsFeatures(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]bool{
		"feature-gates=AllAlpha=true": true, "emulated-version=1.36": true, "min-compatibility-version=1.36": true,
		"emulation-forward-compatible=true": false, "v=2": false,
	} {
		if setsFeatures(flag) != want {
			t.Errorf("%s: not %v", flag, want)
		}
	}
}
