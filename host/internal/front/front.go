package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk/kubeversion"
)

// Options are what a Front is made of.
type Options struct {
	// Flags are the flags of kube-apiserver. New completes them: afterwards they
	// name the port that was bound.
	Flags *Flags
	// ListedPaths returns the paths that the stages list, for the index at /, and
	// to find out whether a stage serves the built-in APIs.
	ListedPaths func() []string
	// Metrics returns what /metrics shows, given the metrics of this process; these alone
	// if it is nil.
	Metrics func(own prometheus.Gatherer) prometheus.Gatherer
	// Signal is called with the lifecycle signals as they come, one at a time, if it
	// is not nil. It must not block.
	Signal func(name string, at time.Time)
	// Log gets what the front itself has to say; upstream logs through klog.
	Log hclog.Logger
}

// Front is a server in front of a chain of stages.
type Front struct {
	opts     Options
	server   *genericapiserver.GenericAPIServer
	listener *connections
	sizes    flowcontrolrequest.StorageObjectCountTracker
	carrier  *Carrier
	writer   errorWriter
	checks   checks
	signals  signals
	audit    *auditPolicy
	// contents are the files of flags as they were at the start.
	contents map[[2]string]digest

	hooks     preShutdownHooks
	draining  chan struct{}
	initiated <-chan struct{}
	drained   <-chan struct{}
	// requests are those that came through the listener.
	requests inFlight

	mu    sync.RWMutex
	chain http.Handler

	// failed ends with the error that fail is called with.
	failed context.Context
	fail   context.CancelCauseFunc
}

// New binds the port and builds the server, which does not accept connections
// before Run. The caller has to call either Run or Close.
func New(ctx context.Context, opts Options) (*Front, error) {
	listener, err := bind(ctx, opts.Flags)
	if err != nil {
		return nil, err
	}
	f := &Front{opts: opts, listener: listener, draining: make(chan struct{})}
	f.signals.tell = opts.Signal
	f.checks.wasReady = func() { f.signals.came(HasBeenReady) }
	f.failed, f.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := f.build(ctx); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return f, nil
}

func (f *Front) build(ctx context.Context) error {
	completed, err := f.opts.Flags.complete(ctx)
	if err != nil {
		return err
	}
	// The loopback clients of this process do not log the warnings that they get
	// from this process.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed.GenericServerRunOptions.ComponentGlobalsRegistry.AddMetrics()
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	f.opts.Flags.applyMetrics()
	registerBuildInfo()

	config, informers, err := genericConfig(completed, f.opts.Flags)
	if err != nil {
		return err
	}
	f.contents = f.opts.Flags.contents()
	if f.audit, err = newAuditPolicy(completed.Audit.PolicyFile); err != nil {
		return err
	}
	if f.audit != nil {
		config.AuditPolicyRuleEvaluator = f.audit
	}
	f.carrier = newCarrier(f.audit)
	f.sizes = config.StorageObjectCountTracker
	f.initiated, f.drained = config.ShutdownInitiatedNotify(), config.DrainedNotify()
	f.writer = errorWriter{config.Serializer}
	f.checks.wrap(config)

	delegate := genericapiserver.NewEmptyDelegateWithCustomHandler(http.HandlerFunc(f.serveChain))
	f.server, err = config.Complete(neededInformers{informers, f.opts.ListedPaths}).New("catena", delegate)
	if err != nil {
		return fmt.Errorf("build the server: %w", err)
	}
	f.installMetrics(config)
	if err := f.server.AddHealthChecks(f.checks.upstreamCheck()); err != nil {
		return err
	}
	f.requests.Handler = f.server.Handler.FullHandlerChain
	f.server.Handler.FullHandlerChain = &f.requests
	routes.Index{}.Install(routes.ListedPathProviders{f.server, listedPaths(f.checks.listedPaths), listedPaths(f.opts.ListedPaths)}, f.server.Handler.NonGoRestfulMux)
	return nil
}

// listedPaths makes a function a routes.ListedPathProvider.
type listedPaths func() []string

func (l listedPaths) ListedPaths() []string { return l() }

// SetChain sets the handler of everything that is not the front's own. It gets
// requests that have passed the filters. Without one, requests get 503.
func (f *Front) SetChain(chain http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chain = chain
}

func (f *Front) serveChain(w http.ResponseWriter, r *http.Request) {
	f.mu.RLock()
	chain := f.chain
	f.mu.RUnlock()
	if chain == nil {
		f.writer.starting(w, r)
		return
	}
	w, r = f.trailed(w, r)
	f.carrier.prepare(r)
	chain.ServeHTTP(trackWatch(w, r), r)
	f.writer.awaitTimeout(w, r)
}

// Handler returns the server's handler with all its filters, for the socket on
// which stages call. See WithLoopbackUser.
func (f *Front) Handler() http.Handler { return f.requests.Handler }

// Carrier returns what carries the state of a request to the stages and back.
func (f *Front) Carrier() *Carrier { return f.carrier }

// SetResourceSize tells how many objects of a resource (RESOURCE.GROUP, or
// RESOURCE in the core group) are stored and how large one is, for the cost of
// LIST requests. What is not told again within three minutes is no longer used.
func (f *Front) SetResourceSize(resource string, count, objectBytes int64) {
	f.sizes.Set(resource, stats(count, objectBytes))
}

// Addr returns the address that the front is bound to.
func (f *Front) Addr() *net.TCPAddr { return f.listener.Addr().(*net.TCPAddr) }

// ExternalURL returns the address under which clients elsewhere reach the server.
func (f *Front) ExternalURL() string { return "https://" + f.server.ExternalAddress }

// LocalURL returns an address under which clients on this machine reach the
// server, however its network changes.
func (f *Front) LocalURL() string {
	addr := f.Addr()
	ip := addr.IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return "https://" + net.JoinHostPort(ip.String(), strconv.Itoa(addr.Port))
}

// Version returns the Kubernetes release that the server reports at /version.
func (f *Front) Version() string { return kubeversion.Info(f.server.EffectiveVersion).GitVersion }

// Close releases the port of a front that is not going to Run.
func (f *Front) Close() error {
	f.server.Destroy()
	return f.listener.Close()
}
