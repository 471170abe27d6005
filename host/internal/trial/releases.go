package trial

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/local"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

// Releases know which releases of Kubernetes the parts of the server are of, and what is in the way of another.
type Releases struct {
	Front  *front.Frontend
	Stages *supervisor.Supervisor
	// Published returns the chain as it is now, head first.
	Published func() []supervisor.Published
	// Prefix is that of the registry in the store.
	Prefix  string
	Storage store.Options
}

// Admit returns why a stage cannot go to another minor release of Kubernetes: something is in the way, and is not
// allowed. No objects are compared: how they differ does not keep a stage from another release.
func (r *Releases) Admit(ctx context.Context, m supervisor.Move) error {
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

func (r *Releases) input(m supervisor.Move) upgrade.Input {
	return upgrade.Input{
		Stage: m.Stage, Flags: m.Flags, Clients: r.clients, Emulated: m.Emulates,
		Old:    upgrade.Side{Release: m.From.GetKubernetes(), Get: r.getFrom(m.Stage, "")},
		New:    upgrade.Side{Release: m.To.GetKubernetes(), Get: r.getFrom(m.Stage, m.Socket)},
		Beside: r.beside(m.Stage), Controllers: r.controllers(m), Chain: r.get,
		Stored: func(ctx context.Context, found func(string, []byte)) error {
			return r.eachStored(ctx, r.Prefix, found)
		},
	}
}

// beside are the parts of the server that stay as they are when a stage is swapped.
func (r *Releases) beside(stage string) []upgrade.Component {
	all := []upgrade.Component{{Name: "host", Release: r.Front.Version()}}
	for _, spec := range r.Stages.Specs() {
		if d, err := r.Stages.Description(spec.Name); err == nil && spec.Name != stage {
			all = append(all, upgrade.Component{Name: "stage " + spec.Name, Release: d.GetKubernetes().GetRelease()})
		}
	}
	return all
}

// controllers are those of the chain as they will be beside core; none beside another stage.
func (r *Releases) controllers(m supervisor.Move) upgrade.Controllers {
	d := m.With[config.Controllers]
	if d == nil {
		d, _ = r.Stages.Description(config.Controllers) // an error means that the chain has no controllers
	}
	if m.Stage != config.Core || d == nil {
		return upgrade.Controllers{}
	}
	return upgrade.Controllers{
		Component: upgrade.Component{Name: "stage " + config.Controllers, Release: d.GetVersion()},
	}
}

// Minor is the minor release that a stage serves, or serves as.
func (r *Releases) Minor(stage string) (string, error) {
	for _, st := range r.Published() {
		if st.Name == stage && st.KubernetesVersion != "" {
			return st.KubernetesVersion, nil
		}
	}
	return "", fmt.Errorf("stage %q serves no release of Kubernetes that another could serve as", stage)
}

func (r *Releases) clients(group, version, resource string) []upgrade.Client {
	var all []upgrade.Client
	for _, client := range r.Front.Clients(group, version, resource) {
		all = append(all, upgrade.Client(client))
	}
	return all
}

// getFrom returns what makes requests to the process of a stage that has a socket, or that serves. They
// pass all filters, as requests of the server itself.
func (r *Releases) getFrom(stage, socket string) func(context.Context, string, http.Header) ([]byte, error) {
	return func(ctx context.Context, path string, header http.Header) ([]byte, error) {
		return r.get(relay.WithStage(ctx, stage, socket), path, header)
	}
}

// get makes a request to the chain, as the server itself.
func (r *Releases) get(ctx context.Context, path string, header http.Header) ([]byte, error) {
	body, err := local.NewClient(r.Front).Get(ctx, path, header)
	if e, ok := errors.AsType[*local.StatusError](err); ok && e.Code == http.StatusNotFound {
		err = fmt.Errorf("GET %s: %w", path, upgrade.ErrNotFound)
	}
	return body, err
}

// eachStored calls found for each object in etcd, whatever stage it belongs to.
func (r *Releases) eachStored(ctx context.Context, prefix string, found func(key string, value []byte)) (err error) {
	client, err := r.Storage.Connect()
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
