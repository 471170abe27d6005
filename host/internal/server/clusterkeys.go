package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/join"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// keysTimeout bounds what is done about keys in the store.
const keysTimeout = 20 * time.Second

// Self is this host, as others see it.
func Self() (join.Host, error) {
	name, err := os.Hostname()
	return join.Host{Name: name, Release: kubeversion.Release()}, err
}

// checkKeys compares the keys of this host with those that the cluster is known by in an external store.
func (r *run) checkKeys(ctx context.Context) error {
	if len(r.storage.Endpoints) == 0 {
		return nil
	}
	return r.recordKeys(ctx)
}

// recordKeysLater records the keys in an embedded store, which no other host has. Watches from the first revisions on work
// as long as nothing is stored before the stages have their caches.
func (r *run) recordKeysLater(ctx context.Context) {
	if len(r.storage.Endpoints) > 0 {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-r.front.Ready():
	}
	if err := r.recordKeys(ctx); err != nil && ctx.Err() == nil {
		r.logs.host.Warn("the keys of this host are not recorded in the store", "error", err)
	}
}

// recordKeys checks the keys of this host and records them. With the defaults of kube-apiserver, nothing is in the store that
// kube-apiserver would not have written.
func (r *run) recordKeys(ctx context.Context) error {
	if r.Config.APIServerDefaults == config.KubernetesDefaults {
		return nil
	}
	own, err := join.ReadKeys(keyFiles(r.flags))
	if err != nil {
		return err
	}
	self, err := Self()
	if err != nil {
		return err
	}
	connect := func(context.Context) (*clientv3.Client, error) { return r.storage.Connect() }
	return r.withCluster(ctx, connect, func(ctx context.Context, cluster *join.Cluster) error {
		if r.ReplaceKeys {
			return cluster.Replace(ctx, own, self)
		}
		err := cluster.Check(ctx, own, self)
		mismatch, ok := errors.AsType[*join.MismatchError](err)
		switch {
		case !ok:
			return err
		case len(r.storage.Endpoints) == 0: // no other host has the old ones
			r.logs.host.Warn("other keys than before: earlier service account tokens or client certificates are not accepted", "error", mismatch)
			return cluster.Replace(ctx, own, self)
		default:
			return fmt.Errorf("store.endpoints: %w; move %s away and %s", err, r.storage.Dir, howToJoin)
		}
	})
}

// howToJoin is what to do if a host does not have the keys of the cluster.
const howToJoin = `run "catena join TOKEN", with a token that "catena token create" prints on a host of the cluster, or copy ca.*, front-proxy-ca.* ` +
	`and sa.* from the pki directory of such a host; if none has them any more, "catena serve --replace-cluster-keys" makes those of this host the cluster's`

// checkJoined returns an error if this host has no keys yet, and would make some, where the cluster in the store has keys already.
func (r *run) checkJoined(ctx context.Context) error {
	if _, err := os.Stat(r.flags.Value("service-account-signing-key-file")); err == nil || len(r.storage.Endpoints) == 0 || r.ReplaceKeys {
		return nil
	}
	return r.withCluster(ctx, r.storage.Dial, func(ctx context.Context, cluster *join.Cluster) error {
		record, err := cluster.Record(ctx)
		if errors.Is(err, join.ErrNoRecord) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("store.endpoints: this host does not have the keys of cluster %s, which host %s serves from there: %s", record.Cluster, record.Name, howToJoin)
	})
}

func (r *run) withCluster(ctx context.Context, connect func(context.Context) (*clientv3.Client, error), do func(context.Context, *join.Cluster) error) error {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	client, err := connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, join.Open(client, r.Config.Store.Prefix))
}

// keyFiles are the files with the keys that clients of the cluster rely on.
func keyFiles(flags *front.Flags) join.Files {
	f := join.Files{
		SigningKey:    flags.Value("service-account-signing-key-file"),
		VerifyingKeys: flags.Values("service-account-key-file"),
		ClientCA:      flags.Value("client-ca-file"),
	}
	for _, issuers := range flags.Values("service-account-issuer") {
		f.Issuers = append(f.Issuers, strings.Split(issuers, ",")...)
	}
	if len(f.VerifyingKeys) == 0 && f.SigningKey != "" {
		f.VerifyingKeys = []string{f.SigningKey} // as kube-apiserver does
	}
	return f
}
