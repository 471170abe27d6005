package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/relay/h1"
	"github.com/catena-dev/catena/sdk/kubeversion"
	"github.com/catena-dev/catena/sdk/servedinformers"
)

// versionPath is where clients read the release of Kubernetes.
const versionPath = "/version"

// Options are the options of a Frontend.
type Options struct {
	// Flags are the flags of kube-apiserver. New completes them: afterwards they
	// name the port that was bound.
	Flags *Flags
	// Listener is the TCP socket to serve on, if it is not New that binds one. It becomes the front's, also with an error.
	Listener net.Listener
	// Metrics returns what /metrics shows, given the metrics of this process; these alone
	// if it is nil. What is gathered together with an error is shown.
	Metrics func(own prometheus.Gatherers) prometheus.Gatherer
	// Streams are paths with responses that last for as long as their clients want, as those of watches do.
	Streams []string
	// HoldUntilReady lets requests wait until the server is ready, since connections to it wait already. Those of the server
	// itself, and those for its health, do not.
	HoldUntilReady bool
	// Log gets the messages of the front itself; Kubernetes' code logs through klog.
	Log hclog.Logger
}

// Frontend terminates TLS and passes requests through the filters to a chain of stages.
type Frontend struct {
	opts        Options
	server      *genericapiserver.GenericAPIServer
	listener    *connections
	sizes       flowcontrolrequest.StorageObjectCountTracker
	propagator  *Propagator
	metrics     *Metrics
	metricsPage http.Handler
	informers   *filterInformers
	longRunning request.LongRunningRequestCheck
	writer      errorWriter
	health      health
	signals     signals
	audit       *auditPolicy
	clients     clients
	loopback    rest.Interface
	// contents are the files of flags as they were at the start.
	contents map[[2]string]digest

	hooks     []func() error
	draining  chan struct{}
	initiated <-chan struct{}
	drained   <-chan struct{}
	requests  requests
	// refusals says when it is logged that connections are refused.
	refusals bounds.LogEvery
	// handingOver is set when another program is about to serve in place of this server.
	handingOver atomic.Bool

	chain, version atomic.Pointer[http.Handler]

	paths atomic.Pointer[[]string]
	// servers are those of SetServers.
	servers atomic.Pointer[[]StageHandler]

	// failed ends with the error that fail is called with.
	failed context.Context
	fail   context.CancelCauseFunc
}

// New binds the port, unless it gets one that is, and builds the server, which does not
// accept connections before Run. The caller has to call either Run or Close.
func New(ctx context.Context, opts Options) (*Frontend, error) {
	f := &Frontend{opts: opts, draining: make(chan struct{})}
	listener, err := listen(ctx, opts.Flags, opts.Listener, f.connectionRefused)
	if err != nil {
		return nil, err
	}
	f.listener, f.requests.connections = listener, listener
	f.health.ready = make(chan struct{})
	f.health.wasReady = func() { f.signals.came(HasBeenReady) }
	f.failed, f.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := f.build(ctx); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return f, nil
}

func (f *Frontend) build(ctx context.Context) error {
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
	f.metrics = newMetrics()

	config, informers, err := genericConfig(completed, f.opts.Flags, f.listener)
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("loopback client: %w", err)
	}
	f.loopback = client.RESTClient()
	f.informers = &filterInformers{SharedInformerFactory: servedinformers.New(informers, f.loopback)}
	longRunning := config.LongRunningFunc
	f.longRunning = func(r *http.Request, info *request.RequestInfo) bool {
		return longRunning(r, info) || isProfile(info) || slices.Contains(f.opts.Streams, r.URL.Path)
	}
	config.LongRunningFunc = func(r *http.Request, info *request.RequestInfo) bool {
		return f.handingOver.Load() || f.longRunning(r, info)
	}
	f.contents = f.opts.Flags.contents()
	if f.audit, err = newAuditPolicy(completed.Audit.PolicyFile); err != nil {
		return err
	}
	if f.audit != nil {
		config.AuditPolicyRuleEvaluator = f.audit
	}
	f.propagator = newPropagator(f.audit)
	f.sizes = config.StorageObjectCountTracker
	f.initiated, f.drained = config.ShutdownInitiatedNotify(), config.DrainedNotify()
	f.writer = errorWriter{config.Serializer}
	f.health.created, f.health.livezGrace = time.Now(), config.LivezGracePeriod
	build := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return build(f.health.handler(f.withVersion(everywhere{own: api, stages: &f.servers, serve: f.serveStages})), config)
	}

	delegate := chainDelegate{genericapiserver.NewEmptyDelegateWithCustomHandler(http.HandlerFunc(f.serveChain)), f.listedPaths}
	f.server, err = config.Complete(f.informers).New("catena", delegate)
	if err != nil {
		return fmt.Errorf("build the server: %w", err)
	}
	f.installMetrics(config)
	f.requests.Handler, f.requests.writer = f.server.Handler.FullHandlerChain, f.writer
	if f.opts.HoldUntilReady {
		f.requests.hold = f.holdUntilReady(config.LoopbackClientConfig.BearerToken)
	}
	f.server.Handler.FullHandlerChain = &f.requests
	routes.Index{}.Install(routes.ListedPathProviders{f.server.Handler, listedPaths(f.health.listedPaths),
		listedPaths(f.listedPaths)}, f.server.Handler.NonGoRestfulMux)
	return nil
}

// chainDelegate is the chain as the server's delegate.
type chainDelegate struct {
	genericapiserver.DelegationTarget
	paths func() []string
}

// ListedPaths implements genericapiserver.DelegationTarget. /statusz shows the first elements of these paths, and
// itself, since in kube-apiserver the server downstream has a page of that name too.
func (d chainDelegate) ListedPaths() []string { return append(slices.Clone(d.paths()), "/statusz") }

// listedPaths makes a function a routes.ListedPathProvider.
type listedPaths func() []string

func (l listedPaths) ListedPaths() []string { return l() }

// SetChain sets the handler of all paths that are not the front's own. It gets
// requests that have passed the filters. Without one, requests get 503.
func (f *Frontend) SetChain(chain http.Handler) { f.chain.Store(&chain) }

func (f *Frontend) serveChain(w http.ResponseWriter, r *http.Request) {
	chain := f.chain.Load()
	if chain == nil {
		f.writer.starting(w, r)
		return
	}
	f.clients.seen(r)
	f.serveStages(*chain, w, r)
}

// serveStages has stages serve a request that has passed the filters.
func (f *Frontend) serveStages(stages http.Handler, w http.ResponseWriter, r *http.Request) {
	w, r = f.trailed(w, r)
	f.propagator.prepare(r)
	w, r = trackWatch(w, r)
	stages.ServeHTTP(w, r)
}

// SetVersion sets the handler of /version: the stage whose release of Kubernetes clients are to see. It is the front's own
// if stage is nil.
func (f *Frontend) SetVersion(stage http.Handler) { f.version.Store(&stage) }

// withVersion serves /version as SetVersion wants it, and the rest with next.
func (f *Frontend) withVersion(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == versionPath || strings.HasPrefix(r.URL.Path, versionPath+"/") {
			if stage := f.version.Load(); stage != nil && *stage != nil {
				f.serveStages(*stage, w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// SetListedPaths sets the paths that the stages of the chain list: they are in the index
// at /, and show whether a stage serves the APIs that the filters watch. It is to be
// called whenever they change.
func (f *Frontend) SetListedPaths(paths []string) {
	f.paths.Store(&paths)
	f.informers.setPaths(paths)
}

func (f *Frontend) listedPaths() []string {
	if paths := f.paths.Load(); paths != nil {
		return *paths
	}
	return nil
}

// Handler returns the server's handler with all its filters, for the socket on
// which stages call. See WithLoopbackUser.
func (f *Frontend) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.requests.Handler.ServeHTTP(w, h1.WithTrailers(r)) })
}

// Serve has Handler serve a request of this process itself. The error is that it has panicked, as it does, with http.ErrAbortHandler, when
// the response of a stage breaks off: net/http is not there to end the connection.
func (f *Frontend) Serve(w http.ResponseWriter, r *http.Request) error {
	return panics.Call(func() error {
		f.requests.Handler.ServeHTTP(w, r)
		return nil
	})
}

// Propagator returns what propagates the context of a request to the stages and back.
func (f *Frontend) Propagator() *Propagator { return f.propagator }

// Metrics returns the metrics of the server's stages and configuration.
func (f *Frontend) Metrics() *Metrics { return f.metrics }

// SetResourceSize sets how many objects of a resource (RESOURCE.GROUP, or
// RESOURCE in the core group) are stored and how large one is, for the cost of
// LIST requests. A size that is not set again within three minutes is dropped.
func (f *Frontend) SetResourceSize(resource string, count, objectBytes int64) {
	f.sizes.Set(resource, stats(count, objectBytes))
}

// Addr returns the address that the front is bound to.
func (f *Frontend) Addr() *net.TCPAddr { return f.listener.Addr().(*net.TCPAddr) }

// ExternalURL returns the address under which clients elsewhere reach the server.
func (f *Frontend) ExternalURL() string { return "https://" + f.server.ExternalAddress }

// LocalURL returns an address under which clients on this machine reach the
// server, however its network changes.
func (f *Frontend) LocalURL() string {
	addr := f.Addr()
	ip := addr.IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return "https://" + net.JoinHostPort(ip.String(), strconv.Itoa(addr.Port))
}

// Version returns the Kubernetes release of this program.
func (f *Frontend) Version() string { return kubeversion.Info(f.server.EffectiveVersion).GitVersion }

// Close releases the port of a front that is not going to Run.
func (f *Frontend) Close() error {
	f.server.Destroy()
	return f.listener.Close()
}
