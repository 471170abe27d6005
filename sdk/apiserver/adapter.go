// Package apiserver runs a k8s.io/apiserver GenericAPIServer as a stage of a
// Catena chain.
//
//	func New(env *sdk.Env) (http.Handler, error) {
//		adapter, err := apiserver.New(env)
//		…
//		config := genericapiserver.NewConfig(codecs)
//		… // options' ApplyTo, without SecureServing, Audit and Authentication
//		adapter.Configure(config)
//		server, err := config.Complete(informers).New("mine", adapter.Delegate())
//		… // install API groups
//		return adapter.Serve(apiserver.Server{GenericAPIServer: server})
//	}
//
// The server opens no port. TLS, authentication, authorization, audit logging,
// priority and fairness and all other filters have run in the host before a
// request reaches the stage; the adapter restores what they leave on a request's
// context. The server's hooks, health checks, listed paths and signals become
// the stage's.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/catena-dev/catena/sdk"
)

// Adapter connects one GenericAPIServer to the stage's environment. Its methods
// are called in the order Configure, WithHistory, Delegate, Serve.
type Adapter struct {
	env      *sdk.Env
	loopback *rest.Config
	external noListener

	keys    contextKeys
	history *history

	serializer runtime.NegotiatedSerializer
	// checkGroups are the groups of health checks by their names.
	checkGroups map[string]string
	// complete is closed when the server has installed all its paths.
	complete        chan struct{}
	completeTimeout time.Duration
}

// Server is a server that is ready to be served, with what an embedding server
// needs to do differently.
type Server struct {
	*genericapiserver.GenericAPIServer
	// Prepare finishes the server, like GenericAPIServer.PrepareRun, which it has
	// to call. It is GenericAPIServer.PrepareRun if nil.
	Prepare func() error
	// Claims are the paths that the stage claims, once the server is prepared.
	// They are ClaimsOf the server if nil.
	Claims func() []sdk.Claim
	// StartupChecks are the names of health checks that fail while the server starts, as
	// those of AddBootSequenceHealthChecks. Those of post-start hooks are known.
	StartupChecks []string
	// BeforePostStartHook, if not nil, is called with the name of each post-start hook
	// before that runs, and holds it up until it returns. The hooks run at the same time.
	BeforePostStartHook func(ctx context.Context, name string)
	// PreShutdownWithServer makes the pre-shutdown hooks those of the whole server: they
	// run when the server shuts down, and not when another process of the stage takes the
	// place of this one.
	PreShutdownWithServer bool
}

// New returns an adapter for the stage with the environment env.
func New(env *sdk.Env) (*Adapter, error) {
	host := env.Host()
	external, err := newNoListener(host.ExternalURL)
	if err != nil {
		return nil, err
	}
	loopback, err := newLoopback(host.Socket, host.Token)
	if err != nil {
		return nil, err
	}
	env.AddMetrics(legacyregistry.DefaultGatherer)
	return &Adapter{
		env: env, loopback: loopback, external: external, keys: findKeys(), history: newHistory(env),
		checkGroups: map[string]string{}, complete: make(chan struct{}), completeTimeout: completeTimeout,
	}, nil
}

// Configure sets the parts of config in which a server inside a stage differs
// from one that listens itself. It stands in for SecureServingOptions.ApplyTo,
// and comes before what uses the loopback client.
func (a *Adapter) Configure(config *genericapiserver.Config) {
	a.serializer = config.Serializer
	config.LoopbackClientConfig = a.loopback
	config.SecureServing = &genericapiserver.SecureServingInfo{Listener: a.external}
	config.BuildHandlerChainFunc = a.buildHandlerChain
	config.EnableIndex = false
	config.FlowControl = nil
	config.AuditBackend = nil
	config.AuditPolicyRuleEvaluator = nil
	if config.StorageObjectCountTracker != nil {
		config.StorageObjectCountTracker = newSizeReporter(config.StorageObjectCountTracker, a.env.ReportSizes)
	}
}

// Serve registers what server brings with the stage's environment and returns
// the handler for the host's requests.
func (a *Adapter) Serve(server Server) (http.Handler, error) {
	if server.GenericAPIServer == nil {
		return nil, errors.New("api stage: no server")
	}
	a.env.ListPaths(OwnPaths(server.GenericAPIServer)...)
	a.env.SetClaims(server.claims()...)
	a.env.OnPrepareRun(func(context.Context) error { return a.prepare(server) })
	a.env.OnDestroy(server.Destroy)
	go a.history.run(a.env.Context())
	return server.Handler, nil
}

func (s Server) claims() []sdk.Claim {
	if s.Claims != nil {
		return s.Claims()
	}
	return ClaimsOf(s.GenericAPIServer)
}

func (a *Adapter) prepare(server Server) error {
	if server.Prepare == nil {
		server.GenericAPIServer.PrepareRun()
	} else if err := server.Prepare(); err != nil {
		return fmt.Errorf("prepare server: %w", err)
	}
	a.env.ListPaths(OwnPaths(server.GenericAPIServer)...)
	a.env.SetClaims(server.claims()...)
	a.registerHooks(server)
	a.registerChecks(server)
	a.serveDebug(server.GenericAPIServer)
	a.serveZPages(server.GenericAPIServer)
	a.watchSignals(server.MuxAndDiscoveryCompleteSignals())
	return nil
}

// watchSignals closes complete once all signals have come. The host hears of them when
// the server acts on them.
func (a *Adapter) watchSignals(signals map[string]<-chan struct{}) {
	for name := range signals {
		a.env.MuxComplete(name, a.complete)
	}
	go func() {
		for _, signal := range signals {
			select {
			case <-signal:
			case <-a.env.Context().Done():
				return
			}
		}
		close(a.complete)
	}()
}
