// Stage cache serves reads from memory that may be old: those with resourceVersion=0.
package main

import (
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Config of the stage, with the defaults in main.
type Config struct {
	TTL      sdk.Duration `json:"ttl" jsonschema:"how old a response may be"`
	MaxBytes int          `json:"maxBytes" jsonschema:"size of all responses that are kept"`
	PerUser  bool         `json:"perUser" jsonschema:"whether each user has responses of their own; false only if no stage downstream responds to each user differently"`
}

// Validate returns an error for values with which no cache can work.
func (c *Config) Validate() error {
	switch {
	case c.TTL <= 0:
		return sdk.ConfigProblem{Key: "ttl", Message: "want more than 0s"}
	case c.MaxBytes <= 0:
		return sdk.ConfigProblem{Key: "maxBytes", Message: "want more than 0"}
	}
	return nil
}

func defaults() Config {
	return Config{TTL: sdk.Duration(5 * time.Second), MaxBytes: 64 << 20, PerUser: true}
}

func main() {
	sdk.Main(sdk.Stage{Name: "cache", Summary: "serves reads from memory that may be old", New: cache, Config: defaults(),
		Needs: &sdk.Needs{Claims: []sdk.Claim{sdk.Prefix("/api/v1"), sdk.Prefix("/apis")}, SystemRequests: true}}) // whose writes make responses old
}

func cache(env *sdk.Env) (http.Handler, error) {
	h := &handler{env: env, results: prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "cache_requests_total", Help: "Requests by what the cache did."}, []string{"result"})}
	if err := env.Config(&h.cfg); err != nil {
		return nil, err
	}
	h.store = newStore(time.Duration(h.cfg.TTL), h.cfg.MaxBytes, time.Now)
	env.Metrics().MustRegister(h.results)
	env.ClaimPrefix("/api/v1", "/apis")
	return h, nil
}

type handler struct {
	env     *sdk.Env
	cfg     Config
	store   *store
	results *prometheus.CounterVec
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := sdk.RequestInfoFrom(r.Context())
	if info == nil || info.Resource == "" { // discovery
		h.result("bypass")
		h.env.Next.ServeHTTP(w, r)
		return
	}
	resource := info.APIGroup + "/" + info.Resource
	switch {
	case writes(r):
		h.result("write")
		h.store.invalidate(resource) // no response that was read before the write is kept
		h.env.Call.ServeHTTP(w, r)
		h.store.invalidate(resource)
	case info.Subresource == "" && info.Verb != "watch" && mayBeOld(r):
		h.serveOld(w, r, resource)
	default:
		h.result("bypass")
		h.env.Next.ServeHTTP(w, r)
	}
}

func (h *handler) result(name string) { h.results.WithLabelValues(name).Inc() }

func (h *handler) serveOld(w http.ResponseWriter, r *http.Request, resource string) {
	key := h.keyOf(r)
	if e, age := h.store.get(key); e != nil {
		h.result("hit")
		maps.Copy(w.Header(), e.header)
		w.Header().Set("Age", strconv.Itoa(int(age.Seconds())))
		_, _ = w.Write(e.body)
		return
	}
	h.result("miss")
	t := &tee{ResponseWriter: w, most: h.cfg.MaxBytes / 8}
	begun := h.store.begin(resource)
	h.env.Call.ServeHTTP(t, r)
	if e := t.entry(); e != nil {
		h.store.put(key, resource, begun, e)
	}
}

// keyOf has all that a response may depend on.
func (h *handler) keyOf(r *http.Request) string {
	key := r.URL.RequestURI() + "\n" + r.Header.Get("Accept") + "\n" + r.Header.Get("Accept-Encoding")
	if h.cfg.PerUser {
		key += "\n" + r.Header.Get(stagev1.HeaderUser)
	}
	return key
}
