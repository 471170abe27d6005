package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the metrics of clients and queues, as kube-controller-manager does
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/klogr"
)

// manager runs the controllers while it has the lease.
type manager struct {
	env    *sdk.Env
	config *config.CompletedConfig
	root   clientbuilder.SimpleControllerClientBuilder
	own    ownIdentities
	checks checks

	stopping context.Context // ends when the controllers have to
	stopNow  context.CancelFunc
	running  sync.WaitGroup
}

func newManager(env *sdk.Env) (*manager, error) {
	var cfg Config
	if err := env.Config(&cfg); err != nil {
		return nil, err
	}
	p, problems := parse(cfg, env.Flags())
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %s", problems[0].Key, problems[0].Message)
	}
	if err := klogr.Install(env.Log, cmp.Or(p.server[verbosity], "0"), p.server[verbosityOf]); err != nil {
		return nil, err
	}
	// A controller has no user to warn.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	m := &manager{env: env}
	m.stopping, m.stopNow = context.WithCancel(env.Context())
	if err := m.configure(p.options); err != nil {
		return nil, err
	}
	env.AddMetrics(legacyregistry.DefaultGatherer)
	m.checks.register(env, m.enabled())
	return m, nil
}

// configure does what kube-controller-manager does with its options, with clients of the host.
func (m *manager) configure(o *options.KubeControllerManagerOptions) error {
	clients := newClientConfig(m.env, o.Generic.ClientConnection)
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(clients), options.KubeControllerManagerUserAgent))
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	events := record.NewBroadcaster(record.WithContext(m.env.Context()))
	c := &config.Config{
		Client: client, Kubeconfig: clients,
		EventBroadcaster:         events,
		EventRecorder:            events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: options.KubeControllerManagerUserAgent}),
		ComponentGlobalsRegistry: o.ComponentGlobalsRegistry,
	}
	if err := o.ApplyTo(c, app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()); err != nil {
		return err
	}
	m.config = c.Complete()
	m.root = clientbuilder.SimpleControllerClientBuilder{ClientConfig: clients}
	m.own = ownIdentities{clients}
	return nil
}

// enabled are the names of the controllers that run.
func (m *manager) enabled() (enabled []string) {
	c := app.ControllerContext{ComponentConfig: m.config.ComponentConfig}
	for name, descriptor := range app.NewControllerDescriptors() {
		if c.IsControllerEnabled(descriptor) {
			enabled = append(enabled, name)
		}
	}
	return enabled
}

// start is the post-start hook.
func (m *manager) start(context.Context) error {
	m.running.Go(func() {
		select {
		case <-m.env.Signal("HasBeenReady"): // roles and priority levels are there
		case <-m.stopping.Done():
			return
		}
		m.config.EventBroadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: m.config.Client.CoreV1().Events("")})
		defer m.config.EventBroadcaster.Shutdown()
		if err := m.lead(); err != nil {
			// The informers of a process that has been the leader cannot be had once more. A process that
			// has the lease goes on; this process is started again, and waits for it.
			m.env.Log.Error("the controllers end, and with them the process", "error", err)
			os.Exit(1)
		}
	})
	return nil
}

// stop ends the controllers and gives up the lease, so that another process takes over at once. It is the pre-shutdown hook.
func (m *manager) stop(ctx context.Context) error {
	m.stopNow()
	done := make(chan struct{})
	go func() {
		m.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("controllers have not ended: %w", context.Cause(ctx))
	}
}

// destroyTimeout is how long the controllers may take to end and the lease to be given up when the stage stops.
const destroyTimeout = 3 * time.Second

// destroy is stop for a process that is replaced.
func (m *manager) destroy() {
	ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
	defer cancel()
	if err := m.stop(ctx); err != nil {
		m.env.Log.Warn("the lease was not given up", "error", err)
	}
}

// run runs the controllers until ctx ends, or they are to stop, and they have returned.
func (m *manager) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.stopping, cancel)()
	c, err := app.CreateControllerContext(ctx, m.config, m.root, m.own)
	if err != nil {
		return err
	}
	descriptors := app.NewControllerDescriptors()
	tokens := descriptors[names.ServiceAccountTokenController]
	delete(descriptors, names.ServiceAccountTokenController)
	controllers, err := app.BuildControllers(ctx, c, descriptors, nil, &m.checks)
	if err != nil {
		return err
	}
	if c.IsControllerEnabled(tokens) {
		controller, err := m.newTokens(ctx, c)
		if err != nil {
			return err
		}
		if controller != nil {
			controllers = append(controllers, controller)
		}
	}
	c.InformerFactory.Start(ctx.Done())
	defer c.InformerFactory.Shutdown()
	c.ObjectOrMetadataInformerFactory.Start(ctx.Done())
	close(c.InformersStarted)
	m.env.Log.Info("this process has the lease: the controllers run", "controllers", len(controllers))
	if !app.RunControllers(ctx, c, controllers, app.ControllerStartJitter, m.config.ControllerShutdownTimeout) {
		return errors.New("controllers have not ended in time")
	}
	return nil
}
