package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
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
	trial, failure := c.stages.Try(ctx, req.Stage, func(spec *supervisor.Spec) error {
		err := toBinary(c.reloader.config(), spec, req.Binary, req.SHA256)
		if err == nil && req.Emulate {
			emulated, err = c.minor(req.Stage)
			emulate(spec, emulated)
		}
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
	in := c.input(supervisor.Move{Stage: req.Stage, From: trial.Serving, To: trial.Description(), Flags: flags, Emulates: emulated, Socket: trial.Socket()})
	in.Sample, in.Failure = req.Sample, failure
	if failure != nil {
		in.New.Get = nil
	}
	return upgrade.Make(ctx, in)
}

// admit returns why a stage cannot go to another minor release of Kubernetes: something is in the way, and is not allowed. No objects are
// compared: how they differ does not keep a stage from another release.
func (c *commands) admit(ctx context.Context, m supervisor.Move) error {
	in := c.input(m)
	if !in.Crosses() {
		return nil
	}
	plan, err := upgrade.Make(ctx, in)
	if err != nil {
		return err
	}
	return plan.Check(m.Allow)
}

func (c *commands) input(m supervisor.Move) upgrade.Input {
	return upgrade.Input{
		Stage: m.Stage, Flags: m.Flags, Clients: c.clients, Emulated: m.Emulates,
		Old:    upgrade.Side{Release: m.From.GetKubernetes(), Get: c.getFrom(m.Stage, "")},
		New:    upgrade.Side{Release: m.To.GetKubernetes(), Get: c.getFrom(m.Stage, m.Socket)},
		Beside: c.beside(m.Stage), Chain: c.get,
		Stored: func(ctx context.Context, found func(string, []byte)) error {
			return c.eachStored(ctx, c.reloader.config().Store.Prefix, found)
		},
	}
}

// beside are the parts of the server that stay as they are when a stage is swapped.
func (c *commands) beside(stage string) []upgrade.Neighbour {
	all := []upgrade.Neighbour{{Name: "host", Release: c.front.Version()}}
	for _, spec := range c.stages.Specs() {
		if release, err := c.stages.Release(spec.Name); err == nil && spec.Name != stage {
			all = append(all, upgrade.Neighbour{Name: "stage " + spec.Name, Release: release})
		}
	}
	return all
}

// minor is the minor release that a stage serves, or serves as.
func (c *commands) minor(stage string) (string, error) {
	for _, st := range c.chain.stages() {
		if st.Name == stage && st.KubernetesVersion != "" {
			return st.KubernetesVersion, nil
		}
	}
	return "", fmt.Errorf("stage %q serves no release of Kubernetes that another could serve as", stage)
}

// emulate makes a stage serve as a minor release, or as its own if that is empty.
func emulate(spec *supervisor.Spec, minor string) {
	flags := map[string][]string{}
	maps.Copy(flags, spec.Flags)
	delete(flags, supervisor.EmulatedVersion)
	if minor != "" {
		flags[supervisor.EmulatedVersion] = []string{"kube=" + minor}
	}
	spec.Flags = flags
}

func (c *commands) clients(group, version, resource string) []upgrade.Client {
	var all []upgrade.Client
	for _, client := range c.front.Clients(group, version, resource) {
		all = append(all, upgrade.Client(client))
	}
	return all
}

// getFrom returns what makes requests to the process of a stage that has a socket, or that serves. They
// pass all filters, as requests of the server itself.
func (c *commands) getFrom(stage, socket string) func(context.Context, string, http.Header) ([]byte, error) {
	return func(ctx context.Context, path string, header http.Header) ([]byte, error) {
		return c.get(relay.WithStage(ctx, stage, socket), path, header)
	}
}

// get makes a request to the chain, as the server itself.
func (c *commands) get(ctx context.Context, path string, header http.Header) ([]byte, error) {
	r, err := http.NewRequestWithContext(front.WithServerUser(ctx), http.MethodGet, c.front.LocalURL()+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header, r.RequestURI = header, path
	w := &responseBuffer{header: http.Header{}, code: http.StatusOK}
	if err := c.front.Serve(w, r); err != nil {
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
func (c *commands) eachStored(ctx context.Context, prefix string, found func(key string, value []byte)) (err error) {
	client, err := c.storage.Connect()
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
