package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

const pods = "/api/v1/namespaces/default/pods"

// counting responds with the number of requests that it has had.
func counting() http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Method", r.Method)
		if r.URL.Query().Get("labelSelector") == "none" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprintf(w, "%d%s", n.Add(1), body)
	})
}

func start(t *testing.T, config any, next http.Handler) *stagetest.Stage {
	t.Helper()
	stage := sdk.Stage{Name: "cache", New: cache, Config: defaults()}
	return stagetest.Start(t, stage, stagetest.Options{Config: config, Next: next})
}

func TestHit(t *testing.T) {
	t.Parallel()
	stage := start(t, map[string]any{"ttl": "1h"}, counting())
	first, second := stage.Get(t, pods+"?resourceVersion=0"), stage.Get(t, pods+"?resourceVersion=0")
	if first.Body != "1" || second.Body != "1" || first.Called != 1 || second.Called != 0 || second.Declined {
		t.Errorf("%+v, %+v", first, second)
	}
	if second.Header.Get("X-Method") != "GET" || second.Header.Get("Age") == "" || first.Header.Get("Age") != "" {
		t.Errorf("%v, %v", first.Header, second.Header)
	}
	if got := stage.Metrics(t); !strings.Contains(got, `cache_requests_total{result="hit"} 1`) {
		t.Error(got)
	}
}

// What must be new, or is not the same for all, is never served from memory.
func TestBypass(t *testing.T) {
	t.Parallel()
	stage := start(t, map[string]any{"ttl": "1h"}, counting())
	for name, call := range map[string]stagetest.Call{
		"newest":          {Path: pods},
		"newest, empty":   {Path: pods + "?resourceVersion="},
		"a version":       {Path: pods + "?resourceVersion=7"},
		"two versions":    {Path: pods + "?resourceVersion=0&resourceVersion=7"},
		"match":           {Path: pods + "?resourceVersion=0&resourceVersionMatch=Exact"},
		"watch":           {Path: pods + "?resourceVersion=0&watch=true"},
		"watch, odd":      {Path: pods + "?resourceVersion=0&watch"},
		"continued":       {Path: pods + "?resourceVersion=0&continue=x"},
		"unknown":         {Path: pods + "?resourceVersion=0&new=1"},
		"malformed query": {Path: pods + "?resourceVersion=0;a"},
		"log":             {Path: pods + "/a/log?resourceVersion=0"},
		"log of pods":     {Path: pods + "/pods/log?resourceVersion=0"},
		"discovery":       {Path: "/apis/apps/v1?resourceVersion=0"},
		"no resource":     {Path: "/api/v1/?resourceVersion=0"},
		"head":            {Method: "HEAD", Path: pods + "?resourceVersion=0"},
		"not found":       {Path: pods + "?resourceVersion=0&labelSelector=none"},
	} {
		first, second := stage.Do(t, call), stage.Do(t, call)
		if second.Header.Get("Age") != "" || first.Body == second.Body && call.Method != "HEAD" {
			t.Errorf("%s: from memory: %q, %q", name, first.Body, second.Body)
		}
	}
}

// Responses differ by all that they may depend on.
func TestKey(t *testing.T) {
	t.Parallel()
	table := http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}}
	calls := []stagetest.Call{
		{Path: pods + "?resourceVersion=0"}, {Path: pods + "?resourceVersion=0&limit=1"}, {Path: pods + "/a?resourceVersion=0"},
		{Path: pods + "?resourceVersion=0", Header: table}, {Path: pods + "?resourceVersion=0", User: &sdk.User{Name: "jane"}},
		{Path: pods + "?resourceVersion=0", User: &sdk.User{Name: "jane", Groups: []string{"admins"}}},
	}
	for perUser, distinct := range map[bool]int{true: 6, false: 4} {
		stage := start(t, map[string]any{"ttl": "1h", "perUser": perUser}, counting())
		seen := map[string]bool{}
		for range 2 {
			for _, c := range calls {
				seen[stage.Do(t, c).Body] = true
			}
		}
		if len(seen) != distinct {
			t.Errorf("per user %t: %d responses, want %d", perUser, len(seen), distinct)
		}
	}
}

// A write to a resource makes what is known of it forgotten, and nothing else.
func TestInvalidate(t *testing.T) {
	t.Parallel()
	const read, nodes = pods + "?resourceVersion=0", "/api/v1/nodes?resourceVersion=0"
	for name, tc := range map[string]struct {
		call   stagetest.Call
		forget bool
	}{
		"create":            {stagetest.Call{Method: "POST", Path: pods, Body: "{}"}, true},
		"delete all":        {stagetest.Call{Method: "DELETE", Path: pods}, true},
		"patch":             {stagetest.Call{Method: "PATCH", Path: pods + "/a", Body: "{}"}, true},
		"status":            {stagetest.Call{Method: "PUT", Path: pods + "/a/status", Body: "{}"}, true},
		"other namespace":   {stagetest.Call{Method: "POST", Path: "/api/v1/namespaces/other/pods"}, true},
		"other resource":    {stagetest.Call{Method: "POST", Path: "/api/v1/namespaces/default/secrets"}, false},
		"namesake":          {stagetest.Call{Method: "POST", Path: "/apis/metrics.k8s.io/v1/namespaces/default/pods"}, false},
		"namespace":         {stagetest.Call{Method: "DELETE", Path: "/api/v1/namespaces/default"}, false},
		"read":              {stagetest.Call{Path: pods}, false},
		"large with a body": {stagetest.Call{Method: "POST", Path: pods, Body: strings.Repeat("x", 1<<20)}, true},
	} {
		stage := start(t, map[string]any{"ttl": "1h"}, counting())
		before, node := stage.Get(t, read), stage.Get(t, nodes)
		if got := stage.Do(t, tc.call); !strings.HasSuffix(got.Body, tc.call.Body) {
			t.Errorf("%s: %d, the body is lost", name, got.Status)
		}
		if after := stage.Get(t, read); (after.Body != before.Body) != tc.forget {
			t.Errorf("%s: %q, then %q", name, before.Body, after.Body)
		}
		if after := stage.Get(t, nodes); after.Body != node.Body {
			t.Errorf("%s: nodes were forgotten", name)
		}
	}
}

// A response that was read before a write is not kept after it.
func TestRace(t *testing.T) {
	t.Parallel()
	reading, written := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var writes atomic.Int64
	stage := start(t, map[string]any{"ttl": "1h"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			writes.Add(1)
			return
		}
		n := writes.Load()
		once.Do(func() {
			close(reading)
			<-written
		})
		fmt.Fprint(w, n)
	}))
	var slow stagetest.Answer
	var done sync.WaitGroup
	done.Go(func() { slow = stage.Get(t, pods+"?resourceVersion=0") })
	<-reading
	stage.Do(t, stagetest.Call{Method: "POST", Path: pods})
	close(written)
	done.Wait()
	if got := stage.Get(t, pods+"?resourceVersion=0"); slow.Body != "0" || got.Body != "1" {
		t.Errorf("%q, then %q", slow.Body, got.Body)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := newStore(time.Minute, 3*overhead+3000, func() time.Time { return now })
	put := func(key string, size int) { s.put(key, "/pods", s.begin("/pods"), &entry{body: make([]byte, size)}) }
	put("a", 1000)
	now = now.Add(59 * time.Second)
	if e, age := s.get("a"); e == nil || age != 59*time.Second {
		t.Errorf("%v, %v", e, age)
	}
	now = now.Add(time.Second)
	if e, _ := s.get("a"); e != nil || s.size != 0 {
		t.Errorf("%v of %d bytes is too old", e, s.size)
	}
	for i := range 10 {
		put(fmt.Sprint(i), 1000)
		if s.size > s.most || len(s.entries) == 0 {
			t.Fatalf("%d bytes in %d responses", s.size, len(s.entries))
		}
	}
	begun := s.begin("/nodes")
	for i := range 2 * maxWritten {
		s.invalidate(fmt.Sprint("/made-up", i))
	}
	if s.put("n", "/nodes", begun, &entry{}); s.entries["n"] != nil || len(s.written) > maxWritten {
		t.Errorf("%d resources are remembered, and one was forgotten in favour of an old response", len(s.written))
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	stage := stagetest.StartProcess(t, stagetest.Build(t, "."), stagetest.Options{Config: map[string]any{"ttl": "1h"}, Next: counting()})
	if first, second := stage.Get(t, pods+"?resourceVersion=0"), stage.Get(t, pods+"?resourceVersion=0"); first.Body != "1" || second.Body != "1" {
		t.Errorf("%q, %q", first.Body, second.Body)
	}
}
