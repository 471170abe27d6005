package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/trace"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Env is what a stage gets from its host. All methods can be called from any goroutine.
type Env struct {
	// Name is the name under which the stage stands in the chain.
	Name string
	// Log goes to the host's log, with its levels and with the stage's name.
	Log hclog.Logger
	// Next passes a request on to the stages downstream. With the writer and the
	// request as the handler got them, and no response begun, it declines: the host
	// sends the request to the next stage, and the response does not pass through this
	// one. With anything else, it calls: it returns when the stages downstream have
	// written their response to the writer. The request's context may have more values
	// for a decline, but no other deadline; headers set on the writer make it a call.
	Next http.Handler
	// Call is like Next, but always calls. A stream that passes through this stage, as a watch, comes to a proper end
	// when the stage drains: see DrainingFrom. RoundTrip returns the response to the stage.
	Call Caller

	config     json.RawMessage
	defaults   any // Stage.Config
	flags      []string
	host       Host
	delegates  []Delegate
	dataDir    string
	generation string
	transports transports
	metrics    *registries
	tracers    trace.TracerProvider

	ctx      context.Context
	draining *drain
	reports  *reports
	hookRuns sync.WaitGroup
	signals  signals

	mu       sync.Mutex
	sealed   bool // PrepareRun has returned: nothing more can be registered
	mistakes []error
	prepare  []func(context.Context) error
	destroy  []func()
	start    hooks
	shutdown hooks
	checks   checks
	pages    map[string]http.Handler
}

// Delegate is a stage downstream of this one.
type Delegate struct {
	Name string
	// ListedPaths and Claims are what the stage reported when it was configured.
	ListedPaths []string
	Claims      []Claim
	// KubernetesVersion is the minor version of Kubernetes, such as 1.37, as which the stage serves; empty if
	// it does not describe one, or if the host is older than this field.
	KubernetesVersion string
	// Optional reports whether the server is ready without the delegate: nothing should wait for it for ever.
	Optional bool
	// Handler sends requests to the delegate, whatever it claims, with the calling
	// stage's own identity.
	Handler http.Handler
}

func newEnv(ctx context.Context, req *stagev1.ConfigureRequest, log hclog.Logger, draining *drain) *Env {
	e := &Env{
		Name:       req.GetName(),
		Log:        log,
		config:     req.GetConfig(),
		flags:      req.GetFlags(),
		host:       hostFromWire(req.GetHost()),
		dataDir:    req.GetDataDir(),
		generation: req.GetGeneration(),
		transports: newTransports(req.GetHost().GetSocket()),
		ctx:        ctx,
		draining:   draining,
		metrics:    newRegistries(log),
		tracers:    noTracers(),
		reports:    newReports(),
	}
	proxy := newProxy(e.transports.relay, e.host.Token, log)
	e.Call = call{proxy: proxy, token: e.host.Token, log: log}
	e.Next = next{call: e.Call}
	for _, d := range req.GetDelegates() {
		e.delegates = append(e.delegates, Delegate{
			Name: d.GetName(), ListedPaths: d.GetListedPaths(), Claims: stagev1.DecodeClaims(d.GetClaims()),
			KubernetesVersion: d.GetKubernetesVersion(), Optional: d.GetOptional(), Handler: toDelegate{proxy: proxy, name: d.GetName()},
		})
	}
	return e
}

// Config decodes the stage's own configuration into what into points to: unknown keys are
// errors, see DecodeConfig. A zero value of the type of Stage.Config gets the defaults
// first; anything else keeps what it holds for keys that are absent.
func (e *Env) Config(into any) error {
	err := setDefaults(e.defaults, into)
	if err == nil {
		err = DecodeConfig(e.config, into)
	}
	if err != nil {
		return fmt.Errorf("config of stage %q: %w", e.Name, err)
	}
	return nil
}

// Flags are the flags of the API server, each as name=value, sorted. The host has
// validated them.
func (e *Env) Flags() []string { return slices.Clone(e.flags) }

// Host is how the stage reaches the host.
func (e *Env) Host() Host { return e.host }

// Client makes requests to the host with the stage's own identity. Scheme and host of
// their URLs are ignored: any will do, such as http://catena/api. One that is made to serve
// another should have the context of that one, or one derived from it: the host then refuses,
// with 508, what comes back to this stage and is made once more.
func (e *Env) Client() *http.Client {
	return &http.Client{Transport: authorized{transport: e.transports.own, token: e.host.Token}}
}

// Delegates are the stages downstream of this one, the nearest first.
func (e *Env) Delegates() []Delegate { return slices.Clone(e.delegates) }

// DataDir is a directory for files of the stage's own. It outlives the process; two
// generations of the stage can run at the same time.
func (e *Env) DataDir() string { return e.dataDir }

// Generation is the random id of this process of the stage.
func (e *Env) Generation() string { return e.generation }

// Context ends when the stage stops, after the requests have ended.
func (e *Env) Context() context.Context { return e.ctx }

// Draining is closed when the stage gets no new requests. Handlers that wait for
// something other than their client, such as watches, are to return then; DrainingFrom
// spreads that over time.
func (e *Env) Draining() <-chan struct{} { return e.draining.begun }

// OnPrepareRun registers what is to be done when all stages of the chain are
// configured, before the first request. The functions run one after the other, in
// the order in which they were registered. An error ends the start of the server.
func (e *Env) OnPrepareRun(f func(context.Context) error) {
	e.register("OnPrepareRun", func() error {
		e.prepare = append(e.prepare, f)
		return nil
	})
}

// OnDestroy registers what is to be done when the stage stops, after Context has ended
// and requests and hooks have had a second to return. The functions run one after the
// other, the last one first, also when New or an OnPrepareRun function has failed.
func (e *Env) OnDestroy(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.destroy = append(e.destroy, f)
}

// register runs f under the lock. Configure or PrepareRun returns its error.
func (e *Env) register(what string, f func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed {
		e.Log.Error("registered too late: the stage has been prepared", "what", what)
		return
	}
	if err := f(); err != nil {
		e.mistakes = append(e.mistakes, fmt.Errorf("%s: %w", what, err))
	}
}

// mistake returns the errors of registrations.
func (e *Env) mistake() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.mistakes...)
}

// runPrepare runs the OnPrepareRun functions, which may register more of them.
func (e *Env) runPrepare(ctx context.Context) error {
	for i := 0; ; i++ {
		e.mu.Lock()
		if i == len(e.prepare) {
			e.sealed = true
			e.mu.Unlock()
			return e.mistake()
		}
		f := e.prepare[i]
		e.mu.Unlock()
		if err := guard(e.Log, "OnPrepareRun", func() error { return f(ctx) }); err != nil {
			return err
		}
	}
}

// runDestroy runs the OnDestroy functions, each once.
func (e *Env) runDestroy() {
	for {
		e.mu.Lock()
		last := len(e.destroy) - 1
		if last < 0 {
			e.mu.Unlock()
			e.transports.closeIdle()
			return
		}
		f := e.destroy[last]
		e.destroy = e.destroy[:last]
		e.mu.Unlock()
		_ = guard(e.Log, "OnDestroy", func() error { f(); return nil })
	}
}
