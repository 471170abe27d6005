package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

func start(t *testing.T, config any) *stagetest.Stage {
	t.Helper()
	return stagetest.Start(t, sdk.Stage{Name: "ratelimit", New: ratelimit, Config: defaults()}, stagetest.Options{
		Config: config,
		Next:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") }),
	})
}

func TestRatelimit(t *testing.T) {
	t.Parallel()
	stage := start(t, map[string]any{"rate": 0.001, "burst": 2})
	as := func(name string, groups ...string) stagetest.Answer {
		return stage.Do(t, stagetest.Call{Path: "/api", User: &sdk.User{Name: name, Groups: groups}})
	}
	for i, want := range []int{200, 200, 429, 429} {
		got := as("jane")
		if got.Status != want {
			t.Errorf("request %d: %d %s", i, got.Status, got.Body)
		}
		// The bucket fills a little between the requests.
		after, _ := strconv.Atoi(got.Header.Get("Retry-After"))
		if want == 429 && (after < 900 || after > 1000 || !strings.Contains(got.Body, `"reason":"TooManyRequests"`)) {
			t.Errorf("%v %s", got.Header, got.Body)
		}
	}
	if got := as("joe"); got.Status != 200 {
		t.Errorf("another user: %d", got.Status)
	}
	for range 5 {
		if got := as("root", "system:masters"); got.Status != 200 {
			t.Errorf("exempt: %d", got.Status)
		}
	}
	if got := stage.Metrics(t); !strings.Contains(got, "\nratelimit_refused_total 2\n") || !strings.Contains(got, "\nratelimit_users 2\n") {
		t.Error(got)
	}
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	b := newBuckets(2, 3, func() time.Time { return now })
	for i, step := range []struct{ after, wait time.Duration }{
		{0, 0}, {0, 0}, {0, 0}, {0, 500 * time.Millisecond}, // the burst is over
		{250 * time.Millisecond, 250 * time.Millisecond}, {250 * time.Millisecond, 0},
		{time.Hour, 0}, {0, 0}, {0, 0}, {0, 500 * time.Millisecond}, // no more than a burst has been saved
	} {
		now = now.Add(step.after)
		if got := b.take("jane"); got != step.wait {
			t.Errorf("step %d: %s, want %s", i, got, step.wait)
		}
	}
}

// Users with full buckets are removed, those who wait are not.
func TestForget(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	b := newBuckets(0.01, 100, func() time.Time { return now })
	for i := range 1000 {
		b.take(fmt.Sprint("user", i))
	}
	for range 100 {
		b.take("busy")
	}
	now = now.Add(10 * time.Minute)
	if b.take("new"); b.size() != 2 {
		t.Errorf("%v users, want 2", b.size())
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	stage := start(t, nil)
	for config, want := range map[string]string{
		`{"rate":0}`: "[rate: want more than 0]", `{"burst":0}`: "[burst: want at least 1]", `{"rate":"x"}`: "[rate: want float64, got string]", `{}`: "[]",
	} {
		if got := fmt.Sprint(stage.Problems(t, raw(config))); got != want {
			t.Errorf("%s: %s, want %s", config, got, want)
		}
	}
}

// raw is a configuration in JSON.
type raw string

// MarshalJSON implements json.Marshaler.
func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func TestProcess(t *testing.T) {
	t.Parallel()
	stage := stagetest.StartProcess(t, stagetest.Build(t, "."), stagetest.Options{Config: map[string]any{"rate": 0.001, "burst": 1}})
	if first, second := stage.Get(t, "/"), stage.Get(t, "/"); !first.Declined || second.Status != http.StatusTooManyRequests {
		t.Errorf("%d, %d", first.Status, second.Status)
	}
}
