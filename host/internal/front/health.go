package front

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apimetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/httplog"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/klog/v2"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/panics"
)

// readyInterval is how often the checks of /readyz are run until all of them pass.
const readyInterval = 50 * time.Millisecond

// health serves /healthz, /livez and /readyz. Kubernetes' own endpoints fix their list
// of checks when the server starts to run; the checks of stages come and go with them.
type health struct {
	// own are the checks of the server itself; nil before it runs.
	own atomic.Pointer[[]lifecycle.Check]
	// stages returns the checks of SetChecks.
	stages atomic.Pointer[func() []lifecycle.Check]

	// names are those of the checks that have metrics.
	names      sync.Map
	namesCount atomic.Int64

	created    time.Time
	livezGrace time.Duration

	ready     chan struct{}
	readyOnce sync.Once
	// wasReady is called once, when all checks of /readyz have passed.
	wasReady func()
}

// SetChecks sets the function that returns the checks of the stages. It is called for
// each request to an endpoint of health.
func (f *Frontend) SetChecks(stages func() []lifecycle.Check) { f.health.stages.Store(&stages) }

// Ready returns a channel that is closed when all checks of /readyz have passed for the
// first time since Run was called.
func (f *Frontend) Ready() <-chan struct{} { return f.health.ready }

// WasReady reports whether they have.
func (f *Frontend) WasReady() bool {
	select {
	case <-f.health.ready:
		return true
	default:
		return false
	}
}

// awaitReady closes the channel of Ready when all checks of /readyz pass.
func (f *Frontend) awaitReady(ctx context.Context) {
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		if f.health.pass(ctx, "readyz") && ctx.Err() == nil {
			f.health.setReady()
			return
		}
		select {
		case <-tick.C:
		case <-f.health.ready:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (h *health) setReady() {
	h.readyOnce.Do(func() {
		h.wasReady()
		close(h.ready)
	})
}

// servingCertificate is the check of Kubernetes' server that is not part of its readiness.
const servingCertificate = "loopback-serving-certificate"

// ownChecks returns the checks that Kubernetes' server has of itself.
func (f *Frontend) ownChecks() []lifecycle.Check {
	var checks []lifecycle.Check
	for _, c := range f.server.HealthzChecks() {
		checks = append(checks, lifecycle.Check{
			Name: c.Name(), Healthz: true, Livez: true, Readyz: c.Name() != servingCertificate, Required: true,
			Boot: strings.HasPrefix(c.Name(), "poststarthook/"),
			Run:  runner(c),
		})
	}
	for _, c := range []healthz.HealthChecker{healthz.NewInformerSyncHealthz(f.informers), healthz.NewShutdownHealthz(f.initiated)} {
		checks = append(checks, lifecycle.Check{Name: c.Name(), Readyz: true, Required: true, Run: runner(c)})
	}
	return checks
}

// runner runs a check that does not depend on the request.
func runner(c healthz.HealthChecker) func(context.Context) error {
	return func(context.Context) error { return c.Check(nil) }
}

// all returns the checks that there are now.
func (h *health) all() []lifecycle.Check {
	var all []lifecycle.Check
	if own := h.own.Load(); own != nil {
		all = slices.Clone(*own)
	}
	if stages := h.stages.Load(); stages != nil {
		all = append(all, (*stages)()...)
	}
	return all
}

// of returns the checks that an endpoint, such as readyz, has now.
func (h *health) of(endpoint string) []lifecycle.Check {
	return slices.DeleteFunc(h.all(), func(c lifecycle.Check) bool {
		switch endpoint {
		case "healthz":
			return !c.Healthz
		case "livez":
			return !c.Livez
		default:
			return !c.Readyz
		}
	})
}

func (h *health) run(ctx context.Context, endpoint string, check lifecycle.Check) error {
	if check.Boot && endpoint == "livez" && time.Since(h.created) < h.livezGrace {
		return nil
	}
	return check.Run(ctx)
}

// CheckResult is the result of a health check.
type CheckResult struct {
	Name string
	// Endpoints are those that the check is part of.
	Endpoints []string
	Required  bool
	// Err is why it has failed.
	Err error
}

// CheckHealth runs the health checks of the server and of its stages, all at once. One that has not returned when ctx ends has
// failed. It is empty before Run.
func (f *Frontend) CheckHealth(ctx context.Context) []CheckResult {
	h := &f.health
	if h.own.Load() == nil {
		return nil
	}
	checks := h.all()
	results := make([]CheckResult, len(checks))
	done := make([]chan error, len(checks))
	for i, check := range checks {
		results[i] = CheckResult{Name: check.Name, Required: check.Required}
		for _, e := range []struct {
			name string
			has  bool
		}{{"healthz", check.Healthz}, {"livez", check.Livez}, {"readyz", check.Readyz}} {
			if e.has {
				results[i].Endpoints = append(results[i].Endpoints, e.name)
			}
		}
		done[i] = make(chan error, 1)
		go func() { done[i] <- panics.Call(func() error { return check.Run(ctx) }) }()
	}
	for i := range checks {
		select {
		case results[i].Err = <-done[i]:
		case <-ctx.Done():
			results[i].Err = context.Cause(ctx)
		}
	}
	return results
}

// pass reports whether all required checks of an endpoint pass.
func (h *health) pass(ctx context.Context, endpoint string) bool {
	return !slices.ContainsFunc(h.of(endpoint), func(c lifecycle.Check) bool {
		return c.Required && h.run(ctx, endpoint, c) != nil
	})
}

// handler serves the endpoints, and each check by its path. All other requests go to
// next.
func (h *health) handler(next http.Handler) http.Handler {
	endpoints := map[string]http.Handler{}
	for _, endpoint := range []string{"healthz", "livez", "readyz"} {
		endpoints[endpoint] = apimetrics.InstrumentHandlerFunc(http.MethodGet, "", "", "", "/"+endpoint, "", "", false, "",
			func(w http.ResponseWriter, r *http.Request) { h.serveAll(w, r, endpoint) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint, name, isCheck := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		all, ok := endpoints[endpoint]
		if !ok || h.own.Load() == nil {
			next.ServeHTTP(w, r)
			return
		}
		if !isCheck {
			all.ServeHTTP(w, r)
			return
		}
		checks := slices.DeleteFunc(h.of(endpoint), func(c lifecycle.Check) bool { return !isNamed(c, name) })
		if len(checks) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		var results []<-chan error
		for _, c := range checks {
			results = append(results, h.start(r.Context(), endpoint, c))
		}
		for _, result := range results {
			if err := <-result; err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
		}
		fmt.Fprint(w, "ok")
	})
}

// isNamed reports whether a client means a check by a name: that of the check, or the one that kube-apiserver has for a check of
// a stage, such as etcd for core/etcd.
func isNamed(c lifecycle.Check, name string) bool {
	_, rest, _ := strings.Cut(c.Name, "/")
	return c.Name == name || c.OfServer && rest == name
}

// serveAll responds as Kubernetes' endpoints of health do.
func (h *health) serveAll(w http.ResponseWriter, r *http.Request, endpoint string) {
	query := r.URL.Query()
	lines, err := h.runAll(r.Context(), endpoint, query["exclude"])
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("Health checks failed", "endpoint", endpoint, "err", err)
		httplog.SetStacktracePredicate(r.Context(), func(int) bool { return false })
		http.Error(w, fmt.Sprintf("%s%s check failed", lines, endpoint), http.StatusInternalServerError)
		return
	}
	if endpoint == "readyz" && !query.Has("exclude") {
		h.setReady()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !query.Has("verbose") {
		fmt.Fprint(w, "ok")
		return
	}
	fmt.Fprintf(w, "%s%s check passed\n", lines, endpoint)
}

// runAll runs the checks of an endpoint without the excluded ones. It returns a line for
// each check, without the reasons of failures, since everyone may ask; the error has
// those of the required checks.
func (h *health) runAll(ctx context.Context, endpoint string, excluded []string) (lines []byte, err error) {
	var out bytes.Buffer
	var failed []error
	excluded = slices.Compact(slices.Sorted(slices.Values(excluded)))
	unknown := slices.Clone(excluded)
	checks := h.of(endpoint)
	isExcluded := func(c lifecycle.Check) bool {
		return slices.ContainsFunc(excluded, func(name string) bool { return isNamed(c, name) || c.Group != "" && c.Group == name })
	}
	results := make([]<-chan error, len(checks))
	for i, check := range checks { // all at once: each may take as long as etcd does not respond
		if !isExcluded(check) {
			results[i] = h.start(ctx, endpoint, check)
		}
	}
	for i, check := range checks {
		if slices.ContainsFunc(excluded, func(name string) bool { return isNamed(check, name) }) {
			unknown = slices.DeleteFunc(unknown, func(name string) bool { return isNamed(check, name) })
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if check.Group != "" && slices.Contains(excluded, check.Group) {
			unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == check.Group })
			fmt.Fprintf(&out, "[+]%s excluded with %s: ok\n", check.Name, check.Group)
			continue
		}
		err := <-results[i]
		result := slis.Success
		switch {
		case err == nil:
			fmt.Fprintf(&out, "[+]%s ok\n", check.Name)
		case check.Required:
			result = slis.Error
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", check.Name)
			failed = append(failed, fmt.Errorf("%s: %w", check.Name, err))
		default:
			result = slis.Error
			fmt.Fprintf(&out, "[-]%s failed: not required\n", check.Name)
		}
		if h.counted(check.Name) {
			_ = slis.ObserveHealthcheck(ctx, check.Name, endpoint, result)
		}
	}
	if len(unknown) > 0 {
		for i := range unknown {
			unknown[i] = fmt.Sprintf("%q", unknown[i])
		}
		fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	return out.Bytes(), errors.Join(failed...)
}

// optionalWait bounds how long an endpoint waits for checks that are not required: what does not count delays nothing.
const optionalWait = 200 * time.Millisecond

// start runs a check on a goroutine of its own. The result comes in the channel.
func (h *health) start(ctx context.Context, endpoint string, check lifecycle.Check) <-chan error {
	result := make(chan error, 1)
	go func() {
		if !check.Required {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, optionalWait)
			defer cancel()
		}
		result <- panics.Call(func() error { return h.run(ctx, endpoint, check) })
	}()
	return result
}

// RunChecks runs checks at once, and returns the error of the first that fails, in their order, with its name.
func RunChecks(ctx context.Context, checks []lifecycle.Check) error {
	errs := make([]error, len(checks))
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() { errs[i] = panics.Call(func() error { return c.Run(ctx) }) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", checks[i].Name, err)
		}
	}
	return nil
}

// counted reports whether there are metrics of a check. Kubernetes' metrics keep all names that there ever were, and
// processes of a stage may bring others each time.
func (h *health) counted(name string) bool {
	if _, ok := h.names.Load(name); ok {
		return true
	}
	if h.namesCount.Add(1) > bounds.CheckNames {
		h.namesCount.Add(-1)
		return false
	}
	h.names.Store(name, true)
	return true
}

// listedPaths returns the paths of the stages' checks, for the index at /.
func (h *health) listedPaths() []string {
	stages := h.stages.Load()
	if stages == nil {
		return nil
	}
	var paths []string
	for _, c := range (*stages)() {
		for endpoint, has := range map[string]bool{"healthz": c.Healthz, "livez": c.Livez, "readyz": c.Readyz} {
			if has {
				paths = append(paths, "/"+endpoint+"/"+c.Name)
			}
		}
	}
	slices.Sort(paths)
	return paths
}
