package generation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/schema"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// ValidateConfig checks that the stage is granted what it declares to need, checks its configuration against the schema that the stage
// describes, and then has the stage check it. The error joins the problems.
func (g *Generation) ValidateConfig(ctx context.Context) error {
	ctx, cancel := g.withStartTimeout(ctx)
	defer cancel()
	if err := g.spec.Grants.Check(g.Name(), g.needs()); err != nil {
		return err
	}
	flags, err := g.Flags()
	if err != nil {
		return err
	}
	if err := g.checkFiles(flags); err != nil {
		return err
	}
	return schema.CheckStage(ctx, g.Name(), g.process, g.spec.Config, flags)
}

// checkFiles returns an error if files that flags of the API server name are out of reach for a
// stage that declares to read these flags.
func (g *Generation) checkFiles(flags []string) error {
	var names, files []string
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		if !slices.Contains(g.needs().GetFlags(), name) || !strings.Contains(value, "/") {
			continue
		}
		for path := range strings.SplitSeq(value, ",") {
			abs, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			if info, err := os.Stat(abs); err == nil && info.Mode().IsRegular() && !g.process.CanRead(abs) {
				names, files = append(names, "apiserver."+name), append(files, abs)
			}
		}
	}
	if len(files) == 0 {
		return nil
	}
	return fmt.Errorf("stages.%s.grants.files: the stage reads %s, and is isolated from %s: add that to the files, or set stages.%[1]s.isolation to off",
		g.Name(), strings.Join(names, ", "), strings.Join(files, ", "))
}

// needs is what the stage declares to need; nil if it declares nothing.
func (g *Generation) needs() *stagev1.Needs { return g.process.Description().GetNeeds() }

// checkClaims returns an error if a stage that does not declare what it needs makes claims that
// have to be granted. Those of a stage that does are not needed: they do not count.
func (g *Generation) checkClaims(claims []*stagev1.Claim) error {
	if g.needs() != nil {
		return nil
	}
	return g.spec.Grants.CheckClaims(g.Name(), stagev1.DecodeClaims(claims))
}

// errOwnKeys is why a stage that has keys of its own is not brought up to read only.
var errOwnKeys = errors.New("grants.store: a process that is to write nothing cannot have keys of its own in the store")

// Flags are those of the API server that the stage gets, each as name=value.
func (g *Generation) Flags() ([]string, error) {
	var own func() ([]string, error)
	if g.opts.OwnStore != nil {
		own = func() ([]string, error) { return g.opts.OwnStore(g.Name()) }
	}
	if g.spec.ReadOnly {
		own = func() ([]string, error) { return nil, errOwnKeys }
	}
	flags, err := g.spec.Grants.SelectFlags(g.needs(), g.spec.flags(g.opts.Flags), own)
	if err != nil {
		return nil, fmt.Errorf("stages.%s.%w", g.Name(), err)
	}
	return flags, nil
}

// Configure passes the stage its configuration and what the stages downstream report, the
// nearest first. It returns what the stage reports.
func (g *Generation) Configure(ctx context.Context, downstream []lifecycle.Report[Report]) (Report, error) {
	g.mu.Lock()
	g.downstream = downstream
	g.mu.Unlock()
	req, err := g.configureRequest(downstream)
	if err != nil {
		return Report{}, err
	}
	ctx, cancel := g.withStartTimeout(ctx)
	defer cancel()
	resp, err := g.process.Client().Configure(ctx, req)
	if err != nil {
		return Report{}, err
	}
	if err := checkClaims(resp.GetClaims()); err != nil {
		return Report{}, fmt.Errorf("stage %q: %w", g.Name(), err)
	}
	if err := g.checkClaims(resp.GetClaims()); err != nil {
		return Report{}, err
	}
	r := Report{Claims: g.granted(resp.GetClaims()), Optional: g.optional}
	r.Paths = g.listed(resp.GetListedPaths(), r.Claims)
	r.configured = r.Paths
	if k := g.Description().GetKubernetes(); k != nil {
		r.KubernetesVersion = kubernetesVersion(k, req.GetFlags())
		if slices.Contains(r.Paths, "/api/v1") {
			r.builtIn = k.GetRelease() + " as " + r.KubernetesVersion
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.report = r
	return r, nil
}

// kubernetesVersion is the minor version as which a stage serves that is of a release and gets these flags; empty if it is of none.
func kubernetesVersion(k *stagev1.Kubernetes, flags []string) string {
	major, rest, ok := strings.Cut(strings.TrimPrefix(k.GetRelease(), "v"), ".")
	if !ok {
		return ""
	}
	minor, _, _ := strings.Cut(rest, ".")
	for _, flag := range flags {
		if value, ok := strings.CutPrefix(flag, EmulatedVersion+"="); ok {
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "kube="), ",")
			return value
		}
	}
	return major + "." + minor
}

func (g *Generation) configureRequest(downstream []lifecycle.Report[Report]) (*stagev1.ConfigureRequest, error) {
	own, err := g.config()
	if err != nil {
		return nil, err
	}
	flags, err := g.Flags()
	if err != nil {
		return nil, err
	}
	req := &stagev1.ConfigureRequest{
		Name:       g.spec.Name,
		Config:     own,
		Flags:      flags,
		DataDir:    g.opts.DataDir,
		Generation: g.id,
		Standby:    g.standby,
		Host: &stagev1.Host{
			Socket:        g.opts.HostSocket,
			Token:         g.token,
			User:          g.spec.User,
			Groups:        g.spec.Groups,
			ServerVersion: g.opts.Server.Version,
			ExternalUrl:   g.opts.Server.ExternalURL,
		},
	}
	if revision := g.opts.Server.HistoryRevision; revision != nil {
		req.Host.HistoryRevision = revision()
	}
	for _, d := range downstream {
		req.Delegates = append(req.Delegates, &stagev1.Delegate{
			Name: d.Stage, ListedPaths: d.Report.Paths, Claims: d.Report.Claims, KubernetesVersion: d.Report.KubernetesVersion,
			Optional: d.Report.Optional,
		})
	}
	return req, nil
}

// storeSockets are the sockets on which the stage may reach the store: what it declares to need
// is not known before it runs.
func (g *Generation) storeSockets() ([]string, error) {
	flags := g.opts.Flags
	switch {
	case g.spec.Grants.Store == grants.NoStore:
		return nil, nil
	case g.spec.ReadOnly:
		flags = g.spec.flags(flags)
	case g.opts.OwnStore != nil:
		own, err := g.opts.OwnStore(g.Name())
		if err != nil {
			return nil, err
		}
		if flags = append(slices.Clone(own), flags...); g.spec.Grants.Store == grants.OwnKeys {
			flags = own
		}
	}
	var sockets []string
	for _, flag := range flags {
		if path, ok := strings.CutPrefix(flag, "etcd-servers=unix://"); ok {
			sockets = append(sockets, path)
		}
	}
	return sockets, nil
}

// withStartTimeout bounds one step of the start. The error of a step that takes longer names
// the key of the configuration.
func (g *Generation) withStartTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return process.WithTimeout(ctx, g.startTimeout, "stages."+g.Name()+".startTimeout")
}

// config is the stage's own configuration as JSON.
func (g *Generation) config() ([]byte, error) {
	own, err := json.Marshal(g.spec.Config)
	if err != nil {
		return nil, fmt.Errorf("encode stages.%s.config: %w", g.Name(), err)
	}
	return own, nil
}

// PrepareRun has the stage finish what needs all stages to be configured. Afterwards its
// data socket is served, unless it is a standby.
func (g *Generation) PrepareRun(ctx context.Context) error {
	ctx, cancel := g.withStartTimeout(ctx)
	defer cancel()
	resp, err := g.process.Client().PrepareRun(ctx, &stagev1.PrepareRunRequest{})
	if status.Code(err) == codes.Unimplemented {
		// Nothing to prepare, and what Configure reported is all there is.
		r := g.Report()
		resp, err = &stagev1.PrepareRunResponse{ListedPaths: r.Paths, Claims: r.Claims}, nil
	}
	if err != nil {
		return err
	}
	if err := CheckReport(resp); err != nil {
		return fmt.Errorf("stage %q: %w", g.Name(), err)
	}
	if err := g.checkClaims(resp.GetClaims()); err != nil {
		return err
	}
	if err := g.watch(ctx); err != nil {
		return err
	}
	g.prepared, g.checks = resp, make(map[string]bool, len(resp.GetHealthChecks()))
	for _, c := range resp.GetHealthChecks() {
		g.checks[c.GetName()] = true
	}
	g.mu.Lock()
	g.hooks = make(map[string]error, len(resp.GetPostStartHooks()))
	for _, name := range resp.GetPostStartHooks() {
		g.hooks[name] = errHookRunning
	}
	g.pending = map[string]bool{}
	for _, name := range resp.GetMuxAndDiscoverySignals() {
		g.pending[name] = true
	}
	g.mu.Unlock()
	g.setReport(resp.GetListedPaths(), resp.GetClaims())
	return nil
}

// CheckReport returns what is wrong with what a stage reports when it is prepared: such a stage is refused.
func CheckReport(resp *stagev1.PrepareRunResponse) error {
	if err := checkClaims(resp.GetClaims()); err != nil {
		return err
	}
	var checks []string
	for _, c := range resp.GetHealthChecks() {
		checks = append(checks, c.GetName())
		if !printable.Is(c.GetServerCheck()) {
			return fmt.Errorf("its health check %q has a server_check %q with characters that cannot be printed",
				c.GetName(), c.GetServerCheck())
		}
		if !printable.Is(c.GetGroup()) {
			return fmt.Errorf("its health check %q has a group %q with characters that cannot be printed", c.GetName(), c.GetGroup())
		}
	}
	for _, all := range []struct {
		what  string
		names []string
	}{
		{"post-start hook", resp.GetPostStartHooks()}, {"pre-shutdown hook", resp.GetPreShutdownHooks()},
		{"health check", checks}, {"mux-and-discovery signal", resp.GetMuxAndDiscoverySignals()},
	} {
		if err := checkNames(all.what, all.names); err != nil {
			return err
		}
	}
	return nil
}

// checkNames refuses names that could forge lines in the log and in the body of /readyz, and those that say too little.
func checkNames(what string, names []string) error {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		switch {
		case name == "":
			return fmt.Errorf("a %s has no name", what)
		case !printable.Is(name):
			return fmt.Errorf("the name of its %s %q has characters that cannot be printed", what, name)
		case seen[name]:
			return fmt.Errorf("two of its %ss have the name %q", what, name)
		}
		seen[name] = true
	}
	return nil
}

// Activate makes a standby accept requests on its data socket.
func (g *Generation) Activate(ctx context.Context) error {
	_, err := g.process.Client().Activate(ctx, &stagev1.ActivateRequest{})
	return err
}
