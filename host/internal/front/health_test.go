package front_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/lifecycle"
)

func TestChecks(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	var failing atomic.Bool
	failing.Store(true)
	run := func(context.Context) error {
		if failing.Load() {
			return errTest
		}
		return nil
	}
	var all []lifecycle.Check
	add := func(name string, healthz, livez, readyz bool) {
		all = append(all, lifecycle.Check{Name: name, Healthz: healthz, Livez: livez, Readyz: readyz, Required: true, Run: run})
	}
	s.SetChecks(func() []lifecycle.Check { return all })
	add("core/all", true, true, true)
	add("core/ready", false, false, true)
	add("core/live", false, true, false)
	add("core/healthlive", true, true, false)
	s.run(t)
	admin := s.admin(t)
	eventually(t, "response", func() bool { return admin.get(t, "/version").code == http.StatusOK })
	for endpoint, want := range map[string]string{
		"/healthz": "core/all core/healthlive",
		"/livez":   "core/all core/live core/healthlive",
		"/readyz":  "core/all core/ready",
	} {
		a := admin.get(t, endpoint+"?verbose")
		for _, name := range []string{"core/all", "core/ready", "core/live", "core/healthlive"} {
			fails := strings.Contains(a.body, "[-]"+name+" failed")
			if fails != strings.Contains(want+" ", name+" ") {
				t.Errorf("%s: %s fails: %t\n%s", endpoint, name, fails, a.body)
			}
		}
	}
	if a := admin.get(t, "/readyz/core/ready"); a.code != http.StatusInternalServerError {
		t.Errorf("single check: %d", a.code)
	}
	failing.Store(false)
	s.waitReady(t)
}

// The checks of an endpoint run at once: each of these takes as long as the others need to begin.
func TestChecksRunAtOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	names := []string{"core/one", "core/two", "core/three"}
	var begun atomic.Int64
	all := make(chan struct{})
	var checks []lifecycle.Check
	for _, name := range names {
		var once sync.Once
		checks = append(checks, lifecycle.Check{Name: name, Readyz: true, Required: true, Run: func(ctx context.Context) error {
			once.Do(func() {
				if begun.Add(1) == int64(len(names)) {
					close(all)
				}
			})
			select {
			case <-all:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
	}
	s.SetChecks(func() []lifecycle.Check { return checks })
	s.run(t)
	admin := s.admin(t)
	eventually(t, "response", func() bool { return admin.get(t, "/version").code == http.StatusOK })
	if a := admin.get(t, "/readyz?verbose"); strings.Contains(a.body, "[-]core") {
		t.Errorf("%d %s", a.code, a.body)
	}
	s.waitReady(t)
}

func passes(context.Context) error { return nil }
func fails(context.Context) error  { return errTest }

func check(name string, run func(context.Context) error) lifecycle.Check {
	return lifecycle.Check{Name: name, Healthz: true, Livez: true, Readyz: true, Required: true, OfServer: true, Run: run}
}

// A check is excluded with its group, as in kube-apiserver.
func TestExcludedGroup(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	grouped := check("core/etcd-override-0", fails)
	grouped.Group = "etcd"
	s.SetChecks(func() []lifecycle.Check { return []lifecycle.Check{check("core/etcd", fails), grouped} })
	s.run(t)
	admin := s.admin(t)
	eventually(t, "start", func() bool { return admin.get(t, "/livez?exclude=etcd").code == http.StatusOK })
	a := admin.get(t, "/livez?verbose&exclude=etcd")
	if want := "[+]core/etcd excluded: ok\n[+]core/etcd-override-0 excluded with etcd: ok\n"; a.code != http.StatusOK || !strings.Contains(a.body, want) || strings.Contains(a.body, "warn") {
		t.Errorf("%d %s, want %s", a.code, a.body, want)
	}
	if a := admin.get(t, "/livez?exclude=etcd-override-0"); a.code == http.StatusOK {
		t.Errorf("etcd is excluded with another check: %s", a.body)
	}
}

// What changes the process is done in each of the servers, or the response says which stays as it is.
func TestEverywhere(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	var asked [2]string
	code := http.StatusOK
	stage := func(i int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked[i] += r.Method + " " + r.URL.Path + " " + string(body) + "\n"
			w.WriteHeader(code)
		})
	}
	s.SetServers([]front.StageHandler{{Name: "one", Handler: stage(0)}, {Name: "two", Handler: stage(1)}})
	s.run(t)
	s.waitReady(t)
	admin := s.admin(t)
	if a := admin.do(t, http.MethodDelete, "/metrics"); a.code != http.StatusOK || a.body != "metrics reset\n" {
		t.Errorf("reset: %d %q", a.code, a.body)
	}
	if a := admin.do(t, http.MethodPut, "/debug/flags/v"); a.code != http.StatusBadRequest {
		t.Errorf("a verbosity that is none: %d %q", a.code, a.body)
	}
	if want := "DELETE /metrics \n"; asked[0] != want || asked[1] != want {
		t.Errorf("stages were asked for %q, each for %q", asked, want)
	}
	code = http.StatusServiceUnavailable
	if a := admin.do(t, http.MethodDelete, "/metrics"); a.code != http.StatusInternalServerError || !strings.Contains(a.body, `stage "one"`) {
		t.Errorf("a stage that is down: %d %q", a.code, a.body)
	}
}

// Checks come and go with the stages, in the lists as well as by path.
func TestChecksCanChangeAtAnyTime(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	var now atomic.Pointer[[]lifecycle.Check]
	now.Store(&[]lifecycle.Check{check("a/ok", passes), check("b/bad", fails)})
	s.SetChecks(func() []lifecycle.Check { return *now.Load() })
	s.run(t)
	admin := s.admin(t)
	eventually(t, "start", func() bool { return admin.get(t, "/livez?exclude=b/bad").code == http.StatusOK })

	for _, step := range []struct {
		path, has, hasNot string
		code              int
	}{
		{path: "/livez", code: 500, has: "[-]b/bad failed: reason withheld\n", hasNot: errTest.Error()},
		{path: "/livez", code: 500, has: "[+]ping ok\n[+]log ok\n", hasNot: "catena-stages ok"},
		{path: "/livez?verbose&exclude=bad", code: 200, has: "[+]a/ok ok\n[+]b/bad excluded: ok\n", hasNot: "warn:"}, // as kube-apiserver names it
		{path: "/livez/bad", code: 500, has: "internal server error", hasNot: "ok"},
		{path: "/livez/ok", code: 200, has: "ok", hasNot: "error"},
		{path: "/livez?verbose&exclude=b/bad", code: 200, has: "[+]a/ok ok\n[+]b/bad excluded: ok\n", hasNot: "warn:"},
		{path: "/livez?exclude=b/bad", code: 200, has: "ok"},
		{path: "/livez?verbose&exclude=b/bad&exclude=c/new", code: 200, has: `warn: some health checks cannot be excluded: no matches for "c/new"`},
		{path: "/livez?verbose&exclude=b/bad&exclude=ping", code: 200, has: "[+]ping excluded: ok\n"},
		{path: "/readyz/a/ok", code: 200, has: "ok"},
		{path: "/readyz/b/bad", code: 500, has: "internal server error: " + errTest.Error()},
		{path: "/", code: 200, has: `"/readyz/b/bad"`},
	} {
		a := admin.get(t, step.path)
		if a.code != step.code || !strings.Contains(a.body, step.has) || step.hasNot != "" && strings.Contains(a.body, step.hasNot) {
			t.Errorf("%s: %d %s\nwant %d with %q and without %q", step.path, a.code, a.body, step.code, step.has, step.hasNot)
		}
	}

	optional := check("d/optional", fails)
	optional.Required = false
	now.Store(&[]lifecycle.Check{check("a/ok", passes), check("c/new", passes), optional})
	s.waitReady(t)
	if a := admin.get(t, "/readyz?verbose"); strings.Contains(a.body, "b/bad") || !strings.Contains(a.body, "[+]c/new ok\n[-]d/optional failed: not required\n") {
		t.Errorf("after the change: %s", a.body)
	}
	if a := admin.get(t, "/readyz/b/bad"); a.code != http.StatusServiceUnavailable { // there is no chain that could respond with 404
		t.Errorf("a check that is gone: %d %s", a.code, a.body)
	}
	if a := admin.get(t, "/readyz/c/new"); a.code != http.StatusOK {
		t.Errorf("a check that is new: %d %s", a.code, a.body)
	}
}

// A stage that does not speak for the server has its checks by its own name alone, and nobody waits for those that are not required.
func TestChecksOfAnyStage(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	hangs := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	checks := []lifecycle.Check{check("core/etcd", passes)}
	for _, c := range []lifecycle.Check{check("x/ping", hangs), check("x/etcd", fails), check("x/own", hangs)} {
		c.Required, c.OfServer = false, false
		checks = append(checks, c)
	}
	s.SetChecks(func() []lifecycle.Check { return checks })
	s.run(t)
	s.waitReady(t)
	admin := s.admin(t)
	for path, want := range map[string]int{"/livez/ping": 200, "/livez/etcd": 200, "/livez/x/etcd": 500} {
		if a := admin.get(t, path); a.code != want {
			t.Errorf("%s: %d %s, want %d", path, a.code, a.body, want)
		}
	}
	if a := admin.get(t, "/livez/own"); a.code == http.StatusOK {
		t.Errorf("a check of a stage by its name alone: %d %s", a.code, a.body)
	}
	// One that hangs for ever would keep this response.
	if a := admin.get(t, "/livez?verbose&exclude=etcd"); a.code != http.StatusOK || !strings.Contains(a.body, "[-]x/ping failed: not required\n[-]x/etcd failed: not required\n") ||
		!strings.Contains(a.body, "[+]core/etcd excluded: ok\n") {
		t.Errorf("with checks that hang: %d %s", a.code, a.body)
	}
}

func TestLivezHasAGraceForTheStart(t *testing.T) {
	t.Parallel()
	flags := open(t)
	flags["livez-grace-period"] = []string{"1h"}
	s := newServer(t, flags)
	boot := check("a/boot", fails)
	boot.Boot = true
	s.SetChecks(func() []lifecycle.Check { return []lifecycle.Check{boot} })
	s.run(t)
	admin := s.admin(t)
	eventually(t, "start", func() bool { return admin.get(t, "/readyz?exclude=a/boot").code == http.StatusOK })
	for path, want := range map[string]int{"/livez": 200, "/livez/a/boot": 200, "/readyz": 500, "/readyz/a/boot": 500, "/healthz": 500} {
		if a := admin.get(t, path); a.code != want {
			t.Errorf("%s: %d %s, want %d", path, a.code, a.body, want)
		}
	}
}
