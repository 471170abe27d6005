package delegates

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"github.com/catena-dev/catena/sdk"
)

// sends returns a handler that responds with a text to everything.
func sends(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// whole and own are claims of a stage that speaks for the whole API, and of one that does not.
var (
	whole = []sdk.Claim{sdk.Exact("/apis"), sdk.Prefix("/api")}
	own   = []sdk.Claim{sdk.Prefix("/apis/own.io"), sdk.Prefix("/apis/apps/v1/scales")}
)

func ask(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// A document of OpenAPI has what the stage claims: paths, group versions and kinds.
func TestOwnOpenAPI(t *testing.T) {
	t.Parallel()
	const v3 = `{"paths":{"apis/own.io/v1":{"serverRelativeURL":"a"},"apis/apps/v1":{"serverRelativeURL":"b"},"api/v1":{"serverRelativeURL":"c"},"version":{"serverRelativeURL":"d"}}}`
	const v2 = `{"swagger":"2.0","info":{"title":"t","version":"v"},"paths":{"/apis/own.io/v1/things":{},"/apis/apps/v1/deployments":{},"/version/":{}},"definitions":{` +
		`"both":{"type":"object","x-kubernetes-group-version-kind":[{"group":"own.io","version":"v1","kind":"Thing"},{"group":"apps","version":"v1","kind":"Deployment"}]},` +
		`"other":{"type":"object","x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"Pod"}]},"none":{"type":"object"}}}`
	for path, text := range map[string]string{openAPIv3: v3, openAPIv2: v2} {
		stage := Bounded(sdk.Delegate{Name: "s", Claims: own, Handler: sends(text)}, hclog.NewNullLogger())
		code, body := ask(t, stage.Handler, path)
		for _, what := range []string{"own.io/v1", `"group":"own.io"`, `"both"`, `"none"`} {
			if strings.Contains(body, what) != strings.Contains(text, what) || code != http.StatusOK {
				t.Errorf("%s: %d %s: %s", path, code, what, body)
			}
		}
		for _, what := range []string{"apps", "api/v1", "version/", "Pod", `"d"`} {
			if strings.Contains(body, what) {
				t.Errorf("%s: has %s: %s", path, what, body)
			}
		}
		if _, body := ask(t, Bounded(sdk.Delegate{Name: "s", Claims: whole, Handler: sends(text)}, hclog.NewNullLogger()).Handler, path); body != text {
			t.Errorf("%s of the whole: %s", path, body)
		}
	}
	stage := Bounded(sdk.Delegate{Name: "s", Claims: own, Handler: sends("{}")}, hclog.NewNullLogger())
	for path, want := range map[string]int{openAPIv3 + "/apis/own.io/v1": 200, openAPIv3 + "/apis/apps/v1": 404, openAPIv3 + "/api/v1": 404} {
		if code, _ := ask(t, stage.Handler, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

// Discovery has the group versions that the stage claims wholly; one that an earlier stage has too is still there when it goes.
func TestOwnDiscovery(t *testing.T) {
	t.Parallel()
	manager := aggregated.NewResourceManager("apis")
	core, foreign := &stage{}, &stage{}
	core.set("1", 0, group("apps", "v1"), group("own.io", "v2"))
	first := NewDiscovery(Bounded(sdk.Delegate{Name: "core", Claims: whole, Handler: core}, hclog.NewNullLogger()), manager, nil)
	second := NewDiscovery(Bounded(sdk.Delegate{Name: "s", Claims: own, Handler: foreign}, hclog.NewNullLogger()), manager, map[metav1.GroupVersion]Priority{{Group: "own.io", Version: "v2"}: {}})
	second.Place = 1
	for i, step := range []struct {
		groups []apidiscoveryv2.APIGroupDiscovery
		want   []string
	}{
		{[]apidiscoveryv2.APIGroupDiscovery{group("apps", "v1", "v9"), group("own.io", "v1", "v2"), group("batch", "v1")}, []string{"apps/v1", "own.io/v2", "own.io/v1"}},
		{nil, []string{"apps/v1", "own.io/v2"}},
	} {
		foreign.set(fmt.Sprint(i), 0, step.groups...)
		first.Sync(t.Context())
		second.Sync(t.Context())
		got, want := slices.Sorted(slices.Values(show(t, manager))), slices.Sorted(slices.Values(step.want))
		if !slices.Equal(got, want) {
			t.Errorf("step %d: discovery has %q, want %q", i, got, want)
		}
	}
}

// A stage of its own groups has few of them, and short documents; one that speaks for the whole API has not.
func TestBounds(t *testing.T) {
	t.Parallel()
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil || r.Context().Err() != nil {
				return
			}
		}
	})
	heavy := "[" + strings.Repeat("{},", maxOwnValues) + "{}]"
	long := `["` + strings.Repeat("x", maxOwn) + `"]`
	for name, tc := range map[string]struct {
		claims  []sdk.Claim
		handler http.Handler
		want    int
	}{
		"endless": {own, endless, 422}, "heavy": {own, sends(heavy), 422}, "long": {own, sends(long), 422}, "text": {own, sends("[]"), 200},
		"heavy whole": {whole, sends(heavy), 200}, "long whole": {whole, sends(long), 200},
	} {
		for _, path := range []string{apis, openAPIv2, openAPIv3} {
			stage := Bounded(sdk.Delegate{Name: "s", Claims: tc.claims, Handler: tc.handler}, hclog.NewNullLogger())
			if code, body := ask(t, stage.Handler, path); code != tc.want {
				t.Errorf("%s: %s: %d %.100s", name, path, code, body)
			}
		}
	}
	var listed []string
	for i := range 2 * maxGroupVersions {
		listed = append(listed, fmt.Sprintf("/apis/own.io/v%d", i))
	}
	var log strings.Builder
	logger := hclog.New(&hclog.LoggerOptions{Output: &log})
	few := Bounded(sdk.Delegate{Name: "s", Claims: own, ListedPaths: append(listed, apis)}, logger)
	if n := len(few.ListedPaths); n != maxGroupVersions+1 || !ServesAPI(few) || strings.Count(log.String(), "WARN") != 1 {
		t.Errorf("%d paths, log %s", n, log.String())
	}
	if all := Bounded(sdk.Delegate{Name: "s", Claims: whole, ListedPaths: listed}, logger); len(all.ListedPaths) != len(listed) {
		t.Errorf("%d paths of the whole", len(all.ListedPaths))
	}
}

// Nobody waits long for a stage of its own groups, and not again at once; for who goes away before, no stage is blamed.
func TestSilentStage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent, asked := true, 0
		stage := Bounded(sdk.Delegate{Name: "s", Claims: own, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if silent {
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, "{}")
		})}, hclog.NewNullLogger())
		gone, leave := context.WithCancel(t.Context())
		leave()
		for i, step := range []struct {
			ctx    context.Context
			silent bool
			after  time.Duration
			code   int
			asked  int
			took   time.Duration
		}{
			{gone, true, 0, 503, 1, 0},
			{t.Context(), true, 0, 503, 2, ownTimeout},
			{t.Context(), true, 0, 503, 2, 0},
			{t.Context(), false, ownRetry - 1, 503, 2, 0},
			{t.Context(), false, 1, 200, 3, 0},
		} {
			silent = step.silent
			time.Sleep(step.after)
			began := time.Now()
			w := httptest.NewRecorder()
			stage.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, openAPIv3, nil).WithContext(step.ctx))
			if w.Code != step.code || asked != step.asked || time.Since(began) != step.took {
				t.Errorf("step %d: %d after %s, asked %d times, want %+v", i, w.Code, time.Since(began), asked, step)
			}
		}
	})
}

// The response of a proxy that breaks off is none, and ends nothing else.
func TestBrokenDocument(t *testing.T) {
	t.Parallel()
	stage := Bounded(sdk.Delegate{Name: "s", Claims: whole, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"paths":`)
		panic(http.ErrAbortHandler)
	})}, hclog.NewNullLogger())
	if code, body := ask(t, stage.Handler, openAPIv3); code != http.StatusServiceUnavailable || json.Valid([]byte(body)) {
		t.Errorf("%d %s", code, body)
	}
}
