// Package conformance sends the same requests to Catena and to the kube-apiserver of
// the release in go.mod, and compares the responses: status, headers and body, except
// for what differs between any two servers. The requests are in testdata.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var self = flag.Bool("self", false, "compare kube-apiserver with itself, to check the cases and what they ignore")

var onlyHTTP1 = flag.Bool("http1", false, "send all requests over HTTP/1.1")

// maxDiff is how many lines of a difference are shown.
const maxDiff = 80

func TestDefault(t *testing.T) { runProfile(t, "testdata/default") }

// Flags that change what clients see.
func TestOptions(t *testing.T) { runProfile(t, "testdata/options") }

func runProfile(t *testing.T, dir string) {
	t.Parallel() // each has servers of its own
	p := loadProfile(t, dir)
	profile, but := filepath.Base(dir), loadExceptions(t)
	but.check(t, profile, p)
	reference, subject := startPair(t, cluster.Options{Flags: p.flags, Release: *kube})
	for _, file := range p.files {
		t.Run(file.name, func(t *testing.T) {
			for _, tc := range file.cases {
				t.Run(tc.Name, func(t *testing.T) {
					tc, differs, status := but.applied(profile+"/"+file.name+"/"+tc.Name, tc)
					compare(t, tc, reference, subject, differs, status)
				})
			}
		})
	}
}

// startPair starts both servers at the same time.
func startPair(t *testing.T, o cluster.Options) (reference, subject *client) {
	t.Helper()
	type started struct {
		server *cluster.Server
		stop   func(bool) error
		err    error
	}
	start := func(catena bool) <-chan started {
		out := make(chan started, 1)
		go func() {
			if catena {
				c, err := startCatena(context.Background(), o)
				if err != nil {
					out <- started{err: err}
					return
				}
				out <- started{c.Server, c.Stop, nil}
				return
			}
			s, err := cluster.StartKubeAPIServer(context.Background(), o)
			if err != nil {
				out <- started{err: err}
				return
			}
			out <- started{s, s.Stop, nil}
		}()
		return out
	}
	var clients []*client
	var errs []error
	for _, out := range []<-chan started{start(false), start(!*self)} {
		s := <-out
		if s.err != nil {
			errs = append(errs, s.err)
			continue
		}
		t.Cleanup(func() {
			if err := s.stop(t.Failed()); err != nil {
				t.Error(err)
			}
		})
		c, err := newClient(s.server)
		clients, errs = append(clients, c), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return clients[0], clients[1]
}

// startCatena starts Catena, with stages of another release if there is -kube.
func startCatena(ctx context.Context, o cluster.Options) (*cluster.Catena, error) {
	o = forCatena(o)
	set, err := binaries()
	if err != nil {
		return nil, err
	}
	o.Set = append(o.Set, set...)
	return cluster.StartCatena(ctx, o)
}

// forCatena replaces flags of kube-apiserver by the keys that Catena has for them.
func forCatena(o cluster.Options) cluster.Options {
	const flag = "etcd-compaction-interval"
	if interval, ok := o.Flags[flag]; ok {
		o.Flags = maps.Clone(o.Flags)
		delete(o.Flags, flag)
		o.Set = append(o.Set, "store.compactionInterval="+interval)
	}
	return o
}

// compare sends the request of a case to both servers. With stages of another release, the responses may have to differ, with
// Catena's status then.
func compare(t *testing.T, tc testCase, reference, subject *client, differs bool, status int) {
	wanted, got, err := runBoth(t.Context(), tc, reference, subject)
	if err != nil {
		t.Fatal(err)
	}
	if wanted.status != *tc.Want {
		t.Errorf("kube-apiserver responds with %d, the case says %d: %.500s", wanted.status, *tc.Want, wanted.body)
	}
	if tc.Differs != 0 && !*self {
		if got.status != tc.Differs {
			t.Errorf("%s responds with %d, the case says %d: %.500s", subject.server.Name, got.status, tc.Differs, got.body)
		}
		return
	}
	if straddle(len(wanted.body), len(got.body)) {
		wanted.dropFraming()
		got.dropFraming()
	}
	want, have := wanted.text(tc, reference), got.text(tc, subject)
	switch {
	case differs && want == have:
		t.Errorf("the responses are equal: testdata/kube-%s.yaml says that they differ", *kube)
	case differs && got.status != status:
		t.Errorf("%s responds with %d, want %d", subject.server.Name, got.status, status)
	case !differs && want != have:
		t.Errorf("%s%s\n%s", tc.Request, tc.Raw, difference(want, have, subject.server.Name))
	}
}

// runBoth sends the request to both servers at the same time.
func runBoth(ctx context.Context, tc testCase, reference, subject *client) (wanted, got *response, err error) {
	var wantedErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		wanted, wantedErr = reference.run(ctx, tc)
	}()
	got, err = subject.run(ctx, tc)
	<-done
	if wantedErr != nil {
		wantedErr = fmt.Errorf("kube-apiserver: %w", wantedErr)
	}
	return wanted, got, errors.Join(wantedErr, err)
}

// difference returns a unified diff of two responses, without the parts that are equal.
func difference(want, have, name string) string {
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(want), B: difflib.SplitLines(have),
		FromFile: "kube-apiserver", ToFile: name, Context: 4,
	})
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(diff, "\n")
	if len(lines) > maxDiff {
		lines = append(lines[:maxDiff], "...")
	}
	return strings.Join(lines, "")
}
