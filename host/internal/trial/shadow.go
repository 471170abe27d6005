// Package trial brings up a second process of a stage beside the one that serves: to compare what both respond, or to plan
// an upgrade to its release. It also decides whether such an upgrade may go on, and what goes along.
package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Trials bring up processes of stages beside those that serve, and end them: one at a time to compare it with the one
// that serves, and others for what PlanUpgrade returns. The fields are set before use, and do not change.
type Trials struct {
	*Releases
	// Config returns the configuration that is in effect.
	Config func() *config.Config
	// Flags are those of the API server that stages get.
	Flags *front.Flags
	Tap   *Tap
	// RuntimeDir is where the socket is from which a process reads the store, and MayRead returns why one may not.
	RuntimeDir string
	MayRead    func(guard.Peer) error
	// Serving reports whether the chain is up: nothing is brought up before.
	Serving *atomic.Bool
	Log     hclog.Logger
	// Panicked is told of panics of the code that ends a process.
	Panicked func(error)

	mu sync.Mutex
	// latest is the comparison under way, or the one that was under way last; nil if there was none.
	latest *shadow.Shadow
	// running are processes that have not been ended.
	running sync.WaitGroup
}

// Why a comparison ends before its time.
var (
	errSwapped  = errors.New("the stage was swapped")
	errRemoved  = errors.New("the stage was removed from the chain")
	errShutdown = errors.New("the server is shutting down")
)

var errNoShadow = errors.New("no stage has been shadowed since the host started: catena shadow STAGE --binary FILE begins")

// StageChanged ends the comparison of a stage whose process is another one, or that has left the chain. It returns at
// once.
func (t *Trials) StageChanged(e supervisor.Event) {
	switch e.Kind {
	case supervisor.SwapDone:
		t.end(e.Stage, errSwapped)
	case supervisor.StageRemoved:
		t.end(e.Stage, errRemoved)
	}
}

// Stop ends the comparison, since the server is shutting down, and returns at once.
func (t *Trials) Stop() { t.end("", errShutdown) }

// end ends the comparison of a stage, or of any if it is empty.
func (t *Trials) end(stage string, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest != nil && (stage == "" || t.latest.Stage() == stage) {
		t.latest.End(why)
	}
}

// Close ends the comparison and waits for the end of its process.
func (t *Trials) Close() error {
	t.Stop()
	t.running.Wait()
	return nil
}

// Summary is the comparison under way, or nil.
func (t *Trials) Summary() *shadow.Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest == nil {
		return nil
	}
	return t.latest.Summary()
}

// Shadow brings up a binary beside the process that serves a stage, and begins to compare the two.
func (t *Trials) Shadow(ctx context.Context, req admin.ShadowRequest) (*shadow.Summary, error) {
	if !t.Serving.Load() {
		return nil, admin.ErrStarting
	}
	end, err := t.Stages.Begin(ctx, supervisor.StartShadow, req.Stage)
	if err != nil {
		return nil, err
	}
	defer end()
	if now := t.Summary(); now != nil {
		return nil, fmt.Errorf("stage %q: stage %q is shadowed by %s until %s: catena shadow stop ends that",
			req.Stage, now.Stage, now.Binary, now.Until.Format(time.RFC3339))
	}
	t.running.Wait() // the process of the one before ends
	return t.shadow(ctx, req)
}

func (t *Trials) shadow(ctx context.Context, req admin.ShadowRequest) (*shadow.Summary, error) {
	cfg := t.Config()
	if len(t.flagOf(cfg, req.Stage, "etcd-servers-overrides")) > 0 {
		return nil, fmt.Errorf("stage %q: apiserver.etcd-servers-overrides is set: a process that can only read the store has no way to these servers", req.Stage)
	}
	socket, closeStore, err := t.serveStore()
	if err != nil {
		return nil, fmt.Errorf("store for the shadow of stage %q: %w", req.Stage, err)
	}
	trial, err := t.Stages.Try(ctx, req.Stage, func(spec *supervisor.Spec) error {
		err := declared.SetBinary(cfg, spec, req.Binary, req.SHA256)
		readOnly(spec, socket)
		return err
	})
	if err == nil {
		err = startInformers(ctx, trial)
	}
	end := func() {
		if trial != nil {
			trial.Close()
		}
		if err := closeStore(); err != nil {
			t.Log.Warn("store for the shadow could not be closed", "stage", req.Stage, "error", err)
		}
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("stage %q is not shadowed: %w", req.Stage, err)
	}
	var groups map[string]bool
	plugins := strings.Split(strings.Join(t.flagOf(cfg, req.Stage, "enable-admission-plugins"), ","), ",")
	if req.Writes && trial.HasHook(informers) && !slices.Contains(plugins, imagePolicy) {
		groups = ownGroups(trial.Serving, trial.Description())
	}
	s := t.compare(req, trial, groups, strings.Join(t.flagOf(cfg, req.Stage, "encryption-provider-config"), ""))
	t.running.Go(panics.Contain(func() {
		select {
		case <-s.Done():
		case <-trial.Done():
			s.End(fmt.Errorf("its process has ended: %w", trial.Err()))
			<-s.Done()
		}
		t.Tap.current.Store(nil)
		end()
		t.Log.Info("stage is not shadowed any more", "stage", req.Stage, "reason", s.Report().Why)
	}, t.Panicked))
	t.Log.Info("stage is shadowed", "stage", req.Stage, "binary", req.Binary, "for", req.For)
	return s.Summary(), nil
}

// Post-start hooks of Kubernetes' servers.
const (
	// informers starts those of all servers.
	informers = "generic-apiserver-start-informers"
	// controllers makes the discovery and OpenAPI of custom resources, and writes.
	controllers = "start-apiextensions-controllers"
	// registration makes what the aggregator serves.
	registration = "apiservice-registration-controller"
)

// readOnlyHooks are post-start hooks without which a server of Kubernetes does not know what to respond, and that write nothing.
var readOnlyHooks = []string{informers, "start-apiextensions-informers", "crd-informer-synced"}

// startInformers runs the hooks of a process that write nothing. It is an error if the stage serves nothing without the others.
func startInformers(ctx context.Context, trial *supervisor.Trial) error {
	if trial.HasHook(registration) {
		return errors.New("what it serves is made by controllers that write, and these do not run in a shadow")
	}
	for _, name := range readOnlyHooks {
		if !trial.HasHook(name) {
			continue
		}
		if err := trial.RunHook(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// flagOf returns the values of a flag of the API server as a stage has it.
func (t *Trials) flagOf(cfg *config.Config, stage, name string) []string {
	if own, ok := cfg.Stages[stage].APIServer[name]; ok {
		return own
	}
	return t.Flags.Values(name)
}

// compare begins to compare a process with the one that serves.
func (t *Trials) compare(req admin.ShadowRequest, trial *supervisor.Trial, groups map[string]bool, encryption string) *shadow.Shadow {
	a := &asker{chain: t.Tap.chain, stage: req.Stage, socket: trial.Socket()}
	s := shadow.Start(shadow.Options{
		Stage: req.Stage, Binary: req.Binary, From: versionOf(trial.Serving), To: versionOf(trial.Description()),
		Sample: req.Sample, For: req.For, Budget: req.Budget, Writes: len(groups) > 0,
		Ask: a.ask, Secret: secretResources(encryption), MayDryRun: (&webhooks{get: t.get}).mayDryRun,
		Observe: func(result string) { t.Front.Metrics().ObserveShadow(req.Stage, result) },
	})
	t.mu.Lock()
	t.latest = s
	t.mu.Unlock()
	t.Tap.current.Store(&tapped{Shadow: s, groups: groups, documents: !trial.HasHook(controllers)})
	return s
}

// ShadowReport is what the latest comparison has found.
func (t *Trials) ShadowReport() (*shadow.Report, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest == nil {
		return nil, errNoShadow
	}
	r := t.latest.Report()
	return &r, nil
}

// StopShadow ends the comparison under way.
func (t *Trials) StopShadow() (*shadow.Report, error) {
	if t.Summary() == nil {
		return nil, errors.New("no stage is shadowed")
	}
	t.end("", shadow.ErrStopped)
	t.running.Wait()
	return t.ShadowReport()
}

// serveStore serves what a process can read of the store, on a socket of its own.
func (t *Trials) serveStore() (socket string, closeStore func() error, err error) {
	socket = filepath.Join(t.RuntimeDir, guard.SecretName("host.shadow", ".sock"))
	l, err := guard.ListenFor(socket, t.MayRead)
	if err != nil {
		return "", nil, err
	}
	served, err := store.ServeReadOnly(t.Storage, l)
	if err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	return socket, served.Close, nil
}

// readOnly keeps the process of a stage from writing: by its way to the store, and by the host.
func readOnly(spec *supervisor.Spec, socket string) {
	flags := map[string][]string{}
	for name, values := range spec.Flags {
		flags[name] = values
	}
	flags["etcd-servers"], flags["etcd-compaction-interval"] = []string{"unix://" + socket}, []string{"0s"}
	for _, name := range []string{"etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
		flags[name] = nil
	}
	spec.Flags, spec.ReadOnly = flags, true
}

// secretResources returns which resources are secret as a whole: Secrets, and those that the operator has encrypted in the store.
func secretResources(encryption string) func(shadow.Resource) bool {
	all := []string{"secrets"}
	if encryption != "" {
		names, err := encrypted(encryption)
		if err != nil {
			names = []string{"*.*"} // in doubt everything is
		}
		all = append(all, names...)
	}
	return func(r shadow.Resource) bool {
		name := schema.GroupResource{Group: r.Group, Resource: r.Name}.String()
		return slices.ContainsFunc(all, func(s string) bool {
			return s == name || s == "*.*" || s == "*."+r.Group
		})
	}
}

// encrypted returns the resources that an EncryptionConfiguration names.
func encrypted(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct {
		Resources []struct {
			Resources []string `json:"resources"`
		} `json:"resources"`
	}
	if err := yaml.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var all []string
	for _, r := range config.Resources {
		all = append(all, r.Resources...)
	}
	return all, nil
}

// versionOf is the release of Kubernetes that a process serves, or else its own version.
func versionOf(d *stagev1.DescribeResponse) string {
	return cmp.Or(d.GetKubernetes().GetRelease(), d.GetVersion())
}
