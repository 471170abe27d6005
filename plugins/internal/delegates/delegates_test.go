package delegates

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/util/compatibility"

	"github.com/catena-dev/catena/sdk"
)

// stage is a delegate with a discovery document that a test can change.
type stage struct {
	mu    sync.Mutex
	etag  string
	items []apidiscoveryv2.APIGroupDiscovery
	code  int
	full  int // how often the whole document was sent
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path != "/apis" || r.Header.Get("Accept") != accept:
		http.NotFound(w, r)
	case s.code != 0:
		http.Error(w, "out of order", s.code)
	case s.etag != "" && r.Header.Get("If-None-Match") == s.etag:
		w.WriteHeader(http.StatusNotModified)
	default:
		s.full++
		w.Header().Set("Etag", s.etag)
		_ = json.NewEncoder(w).Encode(apidiscoveryv2.APIGroupDiscoveryList{Items: s.items})
	}
}

func (s *stage) set(etag string, code int, items ...apidiscoveryv2.APIGroupDiscovery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.etag, s.code, s.items = etag, code, items
}

func group(name string, versions ...string) apidiscoveryv2.APIGroupDiscovery {
	g := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, v := range versions {
		g.Versions = append(g.Versions, apidiscoveryv2.APIVersionDiscovery{
			Version: v, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			Resources: []apidiscoveryv2.APIResourceDiscovery{{Resource: "things", Scope: apidiscoveryv2.ScopeCluster, Verbs: []string{"get"}}},
		})
	}
	return g
}

// show lists what the manager serves: GROUP/VERSION, with a ! if it is stale.
func show(t *testing.T, manager http.Handler) []string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/apis", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	manager.ServeHTTP(w, r)
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	var out []string
	for _, g := range list.Items {
		for _, v := range g.Versions {
			entry := g.Name + "/" + v.Version
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				entry += "!"
			}
			out = append(out, entry)
		}
	}
	return out
}

func TestDiscoveryFollowsTheStage(t *testing.T) {
	t.Parallel()
	s := &stage{}
	manager := aggregated.NewResourceManager("apis")
	d := NewDiscovery(sdk.Delegate{Name: "s", Handler: s}, manager, map[metav1.GroupVersion]Priority{
		{Group: "apps", Version: "v1"}: {Group: 17800, Version: 15}, {Group: "zoo", Version: "v1"}: {Group: 20000, Version: 1},
	})
	var logged []bool
	d.Log = func(err error) { logged = append(logged, err != nil) }
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"nothing to reach", func() { s.set("", http.StatusServiceUnavailable) }, nil},
		{"not found is no answer either", func() { s.set("", http.StatusNotFound) }, nil},
		{"builtin first, then custom", func() { s.set("1", 0, group("a.custom", "v1"), group("apps", "v1"), group("zoo", "v1")) }, []string{"zoo/v1", "apps/v1", "a.custom/v1"}},
		{"unchanged", func() {}, []string{"zoo/v1", "apps/v1", "a.custom/v1"}},
		{"versions come and go", func() { s.set("2", 0, group("a.custom", "v1", "v2"), group("apps", "v1")) }, []string{"apps/v1", "a.custom/v2", "a.custom/v1"}},
		{"down", func() { s.set("2", http.StatusBadGateway) }, []string{"apps/v1!", "a.custom/v2!", "a.custom/v1!"}},
		{"still down", func() {}, []string{"apps/v1!", "a.custom/v2!", "a.custom/v1!"}},
		{"up, unchanged", func() { s.set("2", 0, group("a.custom", "v1", "v2"), group("apps", "v1")) }, []string{"apps/v1", "a.custom/v2", "a.custom/v1"}},
		{"custom group gone", func() { s.set("3", 0, group("apps", "v1")) }, []string{"apps/v1"}},
		{"a builtin group that was gone keeps its place", func() { s.set("4", 0, group("apps", "v1"), group("zoo", "v1")) }, []string{"zoo/v1", "apps/v1"}},
	} {
		step.do()
		d.Sync(t.Context())
		if got := show(t, manager); !slices.Equal(got, step.want) {
			t.Errorf("%s: discovery has %q, want %q", step.what, got, step.want)
		}
	}
	if s.full != 4 {
		t.Errorf("the whole document was sent %d times, want 4", s.full)
	}
	if want := []bool{true, false, true, false}; !slices.Equal(logged, want) {
		t.Errorf("failures logged: %v, want %v", logged, want)
	}
}

// The groups of a delegate that has not responded yet are stale, not gone.
func TestAssume(t *testing.T) {
	t.Parallel()
	s := &stage{}
	manager := aggregated.NewResourceManager("apis")
	d := NewDiscovery(sdk.Delegate{Name: "s", Handler: s}, manager, map[metav1.GroupVersion]Priority{{Group: "apps", Version: "v1"}: {}})
	for _, step := range []struct {
		code int
		want []string
	}{{http.StatusServiceUnavailable, []string{"apps/v1!"}}, {0, []string{"custom/v1"}}, {http.StatusServiceUnavailable, []string{"custom/v1!"}}} {
		s.set("1", step.code, group("custom", "v1"))
		d.Sync(t.Context())
		d.Assume()
		if got := show(t, manager); !slices.Equal(got, step.want) {
			t.Errorf("with status %d, discovery has %q, want %q", step.code, got, step.want)
		}
	}
}

// A delegate that sends nonsense delays no other: its groups are there, and stale. What it
// once had stays.
func TestMalformedDiscovery(t *testing.T) {
	t.Parallel()
	const sound = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"a"},"versions":[{"version":"v1"}]}]}`
	body, code := "", http.StatusOK
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
	manager := aggregated.NewResourceManager("apis")
	d := NewDiscovery(sdk.Delegate{Name: "s", Handler: handler}, manager, map[metav1.GroupVersion]Priority{
		{Group: "a", Version: "v1"}: {Group: 2, Version: 1}, {Group: "b", Version: "v1"}: {Group: 1, Version: 1},
	})
	var logged []string
	d.Log = func(err error) { logged = append(logged, fmt.Sprint(err)) }
	for _, step := range []struct {
		what   string
		code   int
		body   string
		want   []string
		synced bool
		log    string // what is logged, if that is anything
	}{
		{"not there yet", 503, "", nil, false, "status 503"},
		{"no JSON", 200, "{\x00 nonsense", []string{"a/v1!", "b/v1!"}, true, "malformed document: invalid character"},
		{"another kind", 200, `{"kind":"APIGroupList"}`, []string{"a/v1!", "b/v1!"}, true, ""},
		{"sound", 200, sound, []string{"a/v1"}, true, "nil"},
		{"another kind, later", 200, `{"kind":"APIGroupList"}`, []string{"a/v1!"}, true, "want an APIGroupDiscoveryList, got an APIGroupList"},
		{"down", 503, "", []string{"a/v1!"}, true, "status 503"},
		{"sound again", 200, sound, []string{"a/v1"}, true, "nil"},
	} {
		code, body = step.code, step.body
		before := len(logged)
		d.Sync(t.Context())
		if got := show(t, manager); !slices.Equal(got, step.want) {
			t.Errorf("%s: discovery has %q, want %q", step.what, got, step.want)
		}
		if got := strings.Join(logged[before:], "\n"); !strings.Contains(got, step.log) || (got == "") != (step.log == "") {
			t.Errorf("%s: logged %q, want %q", step.what, got, step.log)
		}
		synced := false
		select {
		case <-d.Synced():
			synced = true
		default:
		}
		if synced != step.synced {
			t.Errorf("%s: synced is %v", step.what, synced)
		}
	}
}

func TestPokeIsQuickerThanPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		s.set("1", 0)
		manager := aggregated.NewResourceManager("apis")
		d := NewDiscovery(sdk.Delegate{Name: "s", Handler: s}, manager, nil)
		go d.Run(t.Context())
		<-d.Synced()
		// appears returns after how long a group shows that comes now.
		appears := func(name string) time.Duration {
			began := time.Now()
			s.set(name, 0, group(name, "v1"))
			for !slices.Equal(show(t, manager), []string{name + "/v1"}) {
				if time.Since(began) > time.Minute {
					t.Fatalf("the group %s does not appear", name)
				}
				time.Sleep(time.Millisecond)
			}
			return time.Since(began)
		}
		if took := appears("polled"); took <= 2*burstInterval || took > 2*pollInterval {
			t.Errorf("without a poke it takes %s, want %s", took, pollInterval)
		}
		d.Poke()
		synctest.Wait() // the document has not changed yet
		if took := appears("poked"); took > 2*burstInterval {
			t.Errorf("after a poke it takes %s, at most %s", took, 2*burstInterval)
		}
	})
}

func TestGateOpensWithTheFirstDocument(t *testing.T) {
	t.Parallel()
	s := &stage{code: http.StatusServiceUnavailable}
	d := NewDiscovery(sdk.Delegate{Name: "s", Handler: s}, aggregated.NewResourceManager("apis"), nil)
	ask := func() int {
		w := httptest.NewRecorder()
		d.Gate().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v3", nil))
		return w.Code
	}
	d.Sync(t.Context())
	if got := ask(); got != http.StatusServiceUnavailable {
		t.Errorf("before, the status is %d, want 503", got)
	}
	s.set("1", 0)
	d.Sync(t.Context())
	if got := ask(); got != http.StatusNotFound {
		t.Errorf("after, the status is %d, want the stage's 404", got)
	}
}

func TestChainListsPathsAndAsksOnlyForDocuments(t *testing.T) {
	t.Parallel()
	named := func(name string) sdk.Delegate {
		return sdk.Delegate{
			Name:        name,
			ListedPaths: []string{"/apis", "/apis", "/apis/" + name + "/v1", "/openapi/v2", "/" + name},
			Handler:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(name + r.URL.Path)) }),
		}
	}
	end := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("end")) })
	chain, err := Chain([]sdk.Delegate{named("one"), named("two")}, compatibility.DefaultBuildEffectiveVersion(), end)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/apis/one/v1", "/apis/two/v1", "/one", "/two"} {
		if !slices.Contains(chain.ListedPaths(), want) {
			t.Errorf("listed paths %q lack %s", chain.ListedPaths(), want)
		}
	}
	if hooks := chain.PostStartHooks(); len(hooks) != 0 {
		t.Errorf("chain has post-start hooks of its own: %v", hooks)
	}
	chain.PrepareRun()
	answer := func(handler http.Handler, path string) string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Body.String()
	}
	for _, name := range []string{"one", "two"} {
		for path, want := range map[string]string{
			"/openapi/v2": name + "/openapi/v2", "/openapi/v3": name + "/openapi/v3", "/openapi/v3/apis/x/v1": name + "/openapi/v3/apis/x/v1",
			"/apis/one/v1": "end", "/apis/two/v1/things": "end", "/two": "end", "/apis": "end", "/other": "end",
		} {
			if got := answer(chain.UnprotectedHandler(), path); got != want {
				t.Errorf("server %s: %s is answered with %q, want %q", name, path, got, want)
			}
		}
		chain = chain.NextDelegate()
	}
	if got := answer(chain.UnprotectedHandler(), "/apis/x/v1"); got != "end" {
		t.Errorf("behind the last: %q", got)
	}
}
