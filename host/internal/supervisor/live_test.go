package supervisor

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// table and stages are what the host gives the relay.
func table(published []Published) *claim.Table {
	all := make([][]claim.Claim, len(published))
	for i, p := range published {
		all[i] = stagev1.DecodeClaims(p.Claims)
	}
	return claim.NewTable(all...)
}

func stages(published []Published) []relay.Stage {
	all := make([]relay.Stage, len(published))
	for i, p := range published {
		all[i] = relay.Stage{Name: p.Name, Socket: p.Socket, Refusal: p.Refusal, Held: p.Held}
	}
	return all
}

// serve makes the relay, and the socket on which the stages call it.
func (f *fixture) serve(t *testing.T, socket string) {
	t.Helper()
	f.relay = relay.NewChain(relay.Config{Observe: func(h relay.Hop) {
		if h.Request == nil {
			f.Observe(h.Socket, h.Failed())
		} else if h.Outcome != relay.Replayed {
			f.Compare(h.Socket, canary.Kind{Verb: h.Request.Method}, canary.Outcome{Failed: h.Failed(), Took: h.Took})
		}
	}})
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: &relay.HostHandler{
		Chain: f.relay, API: f.relay,
		Authorize: func(_ http.ResponseWriter, r *http.Request, _ string) (*http.Request, bool) { return r, true }, As: func(r *http.Request, _ relay.Caller) *http.Request { return r },
		Caller: func(_ *http.Request, token string) (relay.Caller, bool) {
			id, ok := f.Authenticate(token)
			caller := relay.Caller{Stage: id.Stage, Socket: id.Socket, Delegates: id.Delegates, MayRewrite: true, MayDelegate: true, Canary: id.Canary}
			for name, st := range id.Staged {
				if caller.Staged == nil {
					caller.Staged = map[string]relay.Staged{}
				}
				caller.Staged[name] = relay.Staged{Socket: st.Socket, Claims: stagev1.DecodeClaims(st.Claims)}
			}
			return caller, ok
		},
	}}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
}

// ask sends a request through the chain.
func (f *fixture) ask(method, target, body string) (int, string) {
	rec := httptest.NewRecorder()
	f.relay.ServeHTTP(rec, httptest.NewRequest(method, target, strings.NewReader(body)))
	return rec.Code, rec.Body.String()
}

// clients ask for the given paths, one after the other, with reads and writes, until
// the returned function is called, which returns how many requests got a response.
func (f *fixture) clients(t *testing.T, paths ...string) (stop func() int64) {
	t.Helper()
	return f.clientsThat(t, []string{"GET", "POST"}, paths...)
}

// clientsThat are clients with the given methods.
func (f *fixture) clientsThat(t *testing.T, methods []string, paths ...string) (stop func() int64) {
	t.Helper()
	var all sync.WaitGroup
	var answered atomic.Int64
	done := make(chan struct{})
	for _, path := range paths {
		for _, method := range methods {
			sent := ""
			if method == "POST" {
				sent = "!" // a request whose body has been read is not sent again, whatever its method
			}
			all.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if status, body := f.ask(method, path, sent); status != http.StatusOK || method == "POST" && !strings.HasSuffix(body, "!") {
						t.Errorf("%s %s: %d %s", method, path, status, body)
						return
					}
					answered.Add(1)
				}
			})
		}
	}
	before := answered.Load()
	eventually(t, "the clients are at work", func() bool { return answered.Load() > before+10 })
	return sync.OnceValue(func() int64 {
		close(done)
		all.Wait()
		return answered.Load()
	})
}

// kinds are the events that have happened, as "KIND STAGE".
func (f *fixture) kinds(kinds ...EventKind) []string {
	f.Supervisor.events.flush()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, e := range f.happened {
		if slices.Contains(kinds, e.Kind) {
			all = append(all, strings.TrimSpace(fmt.Sprint(e.Kind, " ", e.Stage)))
		}
	}
	return all
}

// names are those of the chain as it is published.
func (f *fixture) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, p := range f.published {
		names = append(names, p.Name)
	}
	return names
}

// settled waits until nothing but the serving generations is left.
func (f *fixture) settled(t *testing.T) {
	t.Helper()
	eventually(t, "old generations are gone", func() bool {
		for _, st := range f.Status() {
			if len(st.Others) > 0 || st.State != "serving" || st.Probation != nil {
				return false
			}
		}
		return len(f.processes()) == len(f.order())
	})
	eventually(t, "one socket for each stage is open", func() bool {
		sockets, err := filepath.Glob(filepath.Join(f.opts.RuntimeDir, "?-*.sock"))
		return err == nil && len(sockets) == len(f.order())
	})
}

// ready starts a chain and waits until its hooks have run.
func ready(t *testing.T, change func(*options)) *fixture {
	t.Helper()
	f, err := start(t, change)
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Error(err) })
	eventually(t, "the chain is ready", func() bool {
		for _, c := range f.Checks() {
			if c.Required && c.Run(t.Context()) != nil {
				return false
			}
		}
		return true
	})
	return f
}

func like(spec Spec, name string) Spec {
	spec.Name, spec.User = name, "user-"+name
	spec.Env = map[string]string{envStage: name}
	return spec
}

// TestChainChangesLive adds, removes and reorders stages, several at once, while
// clients read and write: none of their requests fails, and the stages know of each
// other what the chain is.
func TestChainChangesLive(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	specs := f.Specs()
	a, b, c := specs[0], specs[1], specs[2]
	d := like(a, "d")
	stop := f.clients(t, "/a", "/c")
	for _, step := range []struct {
		name   string
		chain  []Spec
		want   Applied
		behind string // what the head knows of the stages behind it
	}{
		{"nothing", []Spec{a, b, c}, Applied{}, "[b[/b] c[/c]]"},
		{"add", []Spec{a, b, d, c}, Applied{Added: []string{"d"}, Swapped: []string{"a", "b"}}, "[b[/b] d[/d] c[/c]]"},
		{"reorder", []Spec{a, d, b, c}, Applied{Swapped: []string{"a", "d", "b"}, Reordered: true}, "[d[/d] b[/b] c[/c]]"},
		{"remove", []Spec{a, d, c}, Applied{Removed: []string{"b"}, Swapped: []string{"a", "d"}}, "[d[/d] c[/c]]"},
		{"all at once", []Spec{a, c, b}, Applied{Added: []string{"b"}, Removed: []string{"d"}, Swapped: []string{"a", "c"}}, "[c[/c] b[/b]]"},
	} {
		got, err := f.Apply(t.Context(), step.chain)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if fmt.Sprint(got) != fmt.Sprint(step.want) {
			t.Errorf("%s: applied %+v, want %+v", step.name, got, step.want)
		}
		var names []string
		for _, spec := range step.chain {
			names = append(names, spec.Name)
		}
		if got := f.names(); !slices.Equal(got, names) {
			t.Errorf("%s: chain %q, want %q", step.name, got, names)
		}
		if status, body := f.ask("GET", "/a", ""); status != 200 || !strings.HasSuffix(body, step.behind) {
			t.Errorf("%s: %d %s, want %s", step.name, status, body, step.behind)
		}
	}
	t.Logf("%d requests", stop())
	f.settled(t)
	want := []string{"stage-added d", "stage-removed b", "stage-added b", "stage-removed d", "chain-reordered"}
	got := f.kinds(StageAdded, StageRemoved, ChainReordered)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestApplyTakesOverWhatNeedsNoProcess changes a timeout.
func TestApplyTakesOverWhatNeedsNoProcess(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	specs, pid := f.Specs(), f.pid("b")
	specs[1].DrainTimeout = time.Minute
	if got, err := f.Apply(t.Context(), specs); err != nil || fmt.Sprint(got) != fmt.Sprint(Applied{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if now := f.Specs()[1]; now.DrainTimeout != time.Minute || f.pid("b") != pid {
		t.Errorf("timeout %s, process %d was %d", now.DrainTimeout, f.pid("b"), pid)
	}
}

// TestFailedApplyChangesNothing tries chains that cannot be, next to clients that notice
// nothing.
func TestFailedApplyChangesNothing(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	specs := f.Specs()
	a, b, c := specs[0], specs[1], specs[2]
	pids := []int{f.pid("a"), f.pid("b"), f.pid("c")}
	with := func(spec Spec, change func(*Spec)) Spec {
		change(&spec)
		return spec
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := f.clients(t, "/a", "/b", "/c")
	for name, tc := range map[string]struct {
		chain []Spec
		want  []string
	}{
		"empty":          {nil, []string{"one stage at least"}},
		"twice":          {[]Spec{a, b, c, b}, []string{`stage "b" is in the chain twice`}},
		"missing":        {[]Spec{a, b, with(like(c, "d"), func(s *Spec) { s.Binary = "/nonexistent" }), c}, []string{`stage "d"`, "/nonexistent"}},
		"not executable": {[]Spec{a, b, with(c, func(s *Spec) { s.Binary = text })}, []string{`stage "c"`, "execut"}},
		"no stage":       {[]Spec{a, b, with(c, func(s *Spec) { s.Binary = "/bin/true" })}, []string{`stage "c"`, "handshake"}},
		"wrong name":     {[]Spec{a, b, with(like(c, "d"), func(s *Spec) { s.Env[envStage] = "other" }), c}, []string{`stage "d"`, `"other"`}},
		"bad config":     {[]Spec{a, with(b, func(s *Spec) { s.Config = map[string]any{"colour": 1} }), c}, []string{`stage "b"`, "colour"}},
		"crashing":       {[]Spec{a, b, with(c, func(s *Spec) { s.Config = map[string]any{"log": f.log, "hook": "exit"} })}, []string{`stage "c"`, "exited with status 255"}},
		"never ready": {[]Spec{a, b, with(c, func(s *Spec) {
			s.StartTimeout = 6 * time.Second
			// The last round is still under way when the time is over.
			s.Config = map[string]any{"log": f.log, "sick": text, "sickAfter": time.Second}
		})}, []string{`stage "c"`, "did not become ready within its startTimeout", "it is sick"}},
		"conflict": {[]Spec{a, b, with(like(c, "d"), func(s *Spec) { s.Config = map[string]any{"log": f.log, "paths": []string{"/c"}} }), c},
			[]string{`stage "d" would serve /c, which stage "c" serves`}},
	} {
		_, err := f.Apply(t.Context(), tc.chain)
		for _, want := range append(tc.want, "nothing has changed") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	stop()
	if got := []int{f.pid("a"), f.pid("b"), f.pid("c")}; !slices.Equal(got, pids) || !slices.Equal(f.names(), []string{"a", "b", "c"}) {
		t.Errorf("processes %v of %v, want %v", got, f.names(), pids)
	}
	f.settled(t)
}
