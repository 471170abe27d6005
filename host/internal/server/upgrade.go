package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

// PlanUpgrade brings a binary of another release up beside the one that serves, compares the two, and ends it.
func (c *commands) PlanUpgrade(ctx context.Context, req admin.PlanRequest) (*upgrade.Plan, error) {
	if !c.serving.Load() {
		return nil, admin.ErrStarting
	}
	end, err := c.stages.Begin(ctx, supervisor.PlanUpgrade, req.Stage)
	if err != nil {
		return nil, err
	}
	defer end()
	emulated := ""
	var tried supervisor.Spec
	trial, failure := c.stages.Try(ctx, req.Stage, func(spec *supervisor.Spec) error {
		err := declared.SetBinary(c.reloader.config(), spec, req.Binary, req.SHA256)
		if err == nil && req.Emulate {
			emulated, err = c.releases.minor(req.Stage)
			declared.Emulate(spec, emulated)
		}
		tried = *spec
		return err
	})
	if trial == nil {
		return nil, failure
	}
	defer trial.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	flags, err := trial.Flags()
	if err != nil {
		return nil, err
	}
	in := c.releases.input(supervisor.Move{
		Stage: req.Stage, From: trial.Serving, To: trial.Description(), Flags: flags, Emulates: emulated,
		Socket: trial.Socket(),
	})
	in.Sample, in.Failure = req.Sample, failure
	in.Controllers.Along = c.releases.controllersFor(tried, trial.Description())
	if failure != nil {
		in.New.Get = nil
	}
	return upgrade.Make(ctx, in)
}

// releases know which releases of Kubernetes the parts of the server are of, and what is in the way of another.
type releases struct {
	front    *front.Frontend
	stages   *supervisor.Supervisor
	chain    *chainState
	reloader *reloader
	storage  store.Options
}

// admit returns why a stage cannot go to another minor release of Kubernetes: something is in the way, and is not allowed. No objects are
// compared: how they differ does not keep a stage from another release.
func (r *releases) admit(ctx context.Context, m supervisor.Move) error {
	in := r.input(m)
	if !in.Crosses() {
		return nil
	}
	plan, err := upgrade.Make(ctx, in)
	if err != nil {
		return err
	}
	return plan.Check(m.Allow)
}

func (r *releases) input(m supervisor.Move) upgrade.Input {
	return upgrade.Input{
		Stage: m.Stage, Flags: m.Flags, Clients: r.clients, Emulated: m.Emulates,
		Old:    upgrade.Side{Release: m.From.GetKubernetes(), Get: r.getFrom(m.Stage, "")},
		New:    upgrade.Side{Release: m.To.GetKubernetes(), Get: r.getFrom(m.Stage, m.Socket)},
		Beside: r.beside(m.Stage), Controllers: r.controllers(m), Chain: r.get,
		Stored: func(ctx context.Context, found func(string, []byte)) error {
			return r.eachStored(ctx, r.reloader.config().Store.Prefix, found)
		},
	}
}

// beside are the parts of the server that stay as they are when a stage is swapped.
func (r *releases) beside(stage string) []upgrade.Component {
	all := []upgrade.Component{{Name: "host", Release: r.front.Version()}}
	for _, spec := range r.stages.Specs() {
		if d, err := r.stages.Description(spec.Name); err == nil && spec.Name != stage {
			all = append(all, upgrade.Component{Name: "stage " + spec.Name, Release: d.GetKubernetes().GetRelease()})
		}
	}
	return all
}

// controllers are those of the chain as they will be beside core; none beside another stage.
func (r *releases) controllers(m supervisor.Move) upgrade.Controllers {
	d := m.With[config.Controllers]
	if d == nil {
		d, _ = r.stages.Description(config.Controllers) // an error means that the chain has no controllers
	}
	if m.Stage != config.Core || d == nil {
		return upgrade.Controllers{}
	}
	return upgrade.Controllers{
		Component: upgrade.Component{Name: "stage " + config.Controllers, Release: d.GetVersion()},
	}
}

// minor is the minor release that a stage serves, or serves as.
func (r *releases) minor(stage string) (string, error) {
	for _, st := range r.chain.stages() {
		if st.Name == stage && st.KubernetesVersion != "" {
			return st.KubernetesVersion, nil
		}
	}
	return "", fmt.Errorf("stage %q serves no release of Kubernetes that another could serve as", stage)
}

func (r *releases) clients(group, version, resource string) []upgrade.Client {
	var all []upgrade.Client
	for _, client := range r.front.Clients(group, version, resource) {
		all = append(all, upgrade.Client(client))
	}
	return all
}

// getFrom returns what makes requests to the process of a stage that has a socket, or that serves. They
// pass all filters, as requests of the server itself.
func (r *releases) getFrom(stage, socket string) func(context.Context, string, http.Header) ([]byte, error) {
	return func(ctx context.Context, path string, header http.Header) ([]byte, error) {
		return r.get(relay.WithStage(ctx, stage, socket), path, header)
	}
}

// get makes a request to the chain, as the server itself.
func (r *releases) get(ctx context.Context, path string, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(front.WithServerUser(ctx), http.MethodGet, r.front.LocalURL()+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header, req.RequestURI = header, path
	w := &responseBuffer{header: http.Header{}, code: http.StatusOK}
	if err := r.front.Serve(w, req); err != nil {
		return nil, fmt.Errorf("GET %s: the response breaks off: %w", path, err)
	}
	if w.code == http.StatusNotFound {
		return nil, fmt.Errorf("GET %s: %w", path, upgrade.ErrNotFound)
	}
	if w.code != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d: %.200s", path, w.code, w.body.String())
	}
	return w.body.Bytes(), nil
}

// responseBuffer keeps a response. The filters wrap no response that cannot be flushed and tell when its client has gone.
type responseBuffer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (w *responseBuffer) Header() http.Header         { return w.header }
func (w *responseBuffer) WriteHeader(code int)        { w.code = code }
func (w *responseBuffer) Write(b []byte) (int, error) { return w.body.Write(b) }
func (w *responseBuffer) Flush()                      {}
func (w *responseBuffer) CloseNotify() <-chan bool    { return nil }

// eachStored calls found for each object in etcd, whatever stage it belongs to.
func (r *releases) eachStored(ctx context.Context, prefix string, found func(key string, value []byte)) (err error) {
	client, err := r.storage.Connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	const page = 500
	key := strings.TrimSuffix(prefix, "/") + "/"
	end := clientv3.GetPrefixRangeEnd(key)
	for {
		resp, err := client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			found(string(kv.Key), kv.Value)
		}
		if !resp.More {
			return nil
		}
		key = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
