package front

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// Check is a health check.
type Check struct {
	// Name is the name under which the endpoints list it, such as STAGE/CHECK.
	Name string
	// Healthz, Livez and Readyz are the endpoints that it is part of.
	Healthz, Livez, Readyz bool
	// Boot says that the check fails while the server starts: /livez has
	// livez-grace-period for it.
	Boot bool
	// Required says that the endpoints fail if the check does. If not, they only show it.
	Required bool
	// Run returns nil if all is well. It is to be bounded in time: an endpoint
	// answers when all its checks have returned.
	Run func(context.Context) error
}

// checksName is the one check that upstream knows, in whose place the endpoints list
// those that there are at the time.
const checksName = "catena-stages"

// checks are the checks of SetChecks. Upstream's endpoints take theirs once, and so can
// neither gain nor lose one: these are put into their answers.
type checks struct {
	source     atomic.Pointer[func() []Check]
	began      time.Time
	livezGrace time.Duration
	// wasReady is called when /readyz has passed.
	wasReady func()
}

// SetChecks sets the function that returns the health checks of the endpoints. It is
// called for each request to one of them, so that they can change at any time.
func (f *Front) SetChecks(source func() []Check) { f.checks.source.Store(&source) }

// of returns the checks of an endpoint, such as readyz, by now.
func (c *checks) of(endpoint string) []Check {
	source := c.source.Load()
	if source == nil {
		return nil
	}
	var part []Check
	for _, check := range (*source)() {
		if endpoint == "healthz" && check.Healthz || endpoint == "livez" && check.Livez || endpoint == "readyz" && check.Readyz {
			part = append(part, check)
		}
	}
	return part
}

func (c *checks) run(ctx context.Context, endpoint string, check Check) error {
	if check.Boot && endpoint == "livez" && time.Since(c.began) < c.livezGrace {
		return nil
	}
	return check.Run(ctx)
}

// handler serves the endpoints of health with the checks in them, and each check by its
// path; next is upstream's handler.
func (c *checks) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint, name, isCheck := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if endpoint != "healthz" && endpoint != "livez" && endpoint != "readyz" {
			next.ServeHTTP(w, r)
			return
		}
		if !isCheck {
			c.serveAll(w, r, endpoint, next)
			return
		}
		all := c.of(endpoint)
		i := slices.IndexFunc(all, func(check Check) bool { return check.Name == name })
		if i < 0 {
			next.ServeHTTP(w, r)
			return
		}
		if err := c.run(r.Context(), endpoint, all[i]); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	})
}

// round is one request for all checks of an endpoint.
type round struct {
	endpoint string
	checks   []Check
	excluded []string
	lines    bytes.Buffer
	// ran says that upstream has answered, and not a stage before there was an endpoint.
	ran bool
}

type roundKey struct{}

// serveAll has upstream answer, which runs its own checks and checksName, and puts the
// results of the single checks in the place of that.
func (c *checks) serveAll(w http.ResponseWriter, r *http.Request, endpoint string, next http.Handler) {
	this := &round{endpoint: endpoint, checks: c.of(endpoint)}
	r = this.in(r)
	answer := bufferedAnswer{header: w.Header(), status: http.StatusOK}
	next.ServeHTTP(&answer, r)
	if endpoint == "readyz" && answer.status == http.StatusOK && this.ran {
		c.wasReady()
	}
	body := answer.body.Bytes()
	for _, line := range []string{"[+]" + checksName + " ok\n", "[-]" + checksName + " failed: reason withheld\n"} {
		body = bytes.Replace(body, []byte(line), this.lines.Bytes(), 1)
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(body)
}

// in returns the request as upstream is to see it: without the names in ?exclude= that
// it does not know.
func (t *round) in(r *http.Request) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), roundKey{}, t))
	query := r.URL.Query()
	if !query.Has("exclude") {
		return r
	}
	known := func(name string) bool {
		return slices.ContainsFunc(t.checks, func(c Check) bool { return c.Name == name })
	}
	var rest []string
	for _, name := range query["exclude"] {
		if known(name) {
			t.excluded = append(t.excluded, name)
		} else {
			rest = append(rest, name)
		}
	}
	query["exclude"] = rest
	u := *r.URL
	u.RawQuery = query.Encode()
	r.URL = &u
	return r
}

// check is what upstream knows as checksName.
func (c *checks) check(r *http.Request) error {
	this, ok := r.Context().Value(roundKey{}).(*round)
	if !ok { // asked for by its own path
		endpoint, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		this = &round{endpoint: endpoint, checks: c.of(endpoint)}
	}
	this.ran = true
	var failed []error
	for _, check := range this.checks {
		if slices.Contains(this.excluded, check.Name) {
			fmt.Fprintf(&this.lines, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if err := c.run(r.Context(), this.endpoint, check); err != nil {
			_ = slis.ObserveHealthcheck(context.Background(), check.Name, this.endpoint, slis.Error)
			if !check.Required {
				fmt.Fprintf(&this.lines, "[-]%s failed: not required\n", check.Name)
				continue
			}
			fmt.Fprintf(&this.lines, "[-]%s failed: reason withheld\n", check.Name)
			failed = append(failed, fmt.Errorf("%s: %w", check.Name, err))
			continue
		}
		_ = slis.ObserveHealthcheck(context.Background(), check.Name, this.endpoint, slis.Success)
		fmt.Fprintf(&this.lines, "[+]%s ok\n", check.Name)
	}
	return errors.Join(failed...)
}

// wrap makes the checks part of a server that is made from the configuration and that
// gets upstreamCheck too.
func (c *checks) wrap(config *genericapiserver.Config) {
	c.began, c.livezGrace = time.Now(), config.LivezGracePeriod
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return build(c.handler(api), config)
	}
}

func (c *checks) upstreamCheck() healthz.HealthChecker {
	return healthz.NamedCheck(checksName, c.check)
}

// listedPaths are the paths of the checks, for the index at /.
func (c *checks) listedPaths() []string {
	var paths []string
	for _, endpoint := range []string{"healthz", "livez", "readyz"} {
		for _, check := range c.of(endpoint) {
			paths = append(paths, "/"+endpoint+"/"+check.Name)
		}
	}
	return paths
}

// bufferedAnswer is an http.ResponseWriter that keeps a short answer.
type bufferedAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *bufferedAnswer) Header() http.Header         { return b.header }
func (b *bufferedAnswer) WriteHeader(status int)      { b.status = status }
func (b *bufferedAnswer) Write(p []byte) (int, error) { return b.body.Write(p) }
