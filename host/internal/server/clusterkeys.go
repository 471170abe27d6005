package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/join"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// keysTimeout bounds what is done about keys in the store.
const keysTimeout = 20 * time.Second

// Self is this host, as others see it.
func Self() (join.Host, error) {
	name, err := os.Hostname()
	return join.Host{Name: name, Release: kubeversion.Release()}, err
}

// clusterKeys compares the keys of this host with those of its cluster, which the store records.
type clusterKeys struct {
	config  *config.Config
	flags   *front.Flags
	storage store.Options
	// replace makes the keys of this host those of the cluster, whichever it had.
	replace bool
	log     hclog.Logger
}

func (r *run) keys() *clusterKeys {
	return &clusterKeys{
		config: r.Config, flags: r.flags, storage: r.data.storage, replace: r.ReplaceKeys, log: r.logs.host,
	}
}

// check compares the keys of this host with those that the cluster is known by in an external store.
func (k *clusterKeys) check(ctx context.Context) error {
	if len(k.storage.Endpoints) == 0 {
		return nil
	}
	return k.record(ctx)
}

// recordLater records the keys in an embedded store, which no other host has. Watches from the first revisions on work
// as long as nothing is stored before the stages have their caches.
func (k *clusterKeys) recordLater(ctx context.Context, ready <-chan struct{}) {
	if len(k.storage.Endpoints) > 0 {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-ready:
	}
	if err := k.record(ctx); err != nil && ctx.Err() == nil {
		k.log.Warn("the keys of this host are not recorded in the store", "error", err)
	}
}

// record checks the keys of this host and records them. With the defaults of kube-apiserver, nothing is in the store
// that kube-apiserver would not have written.
func (k *clusterKeys) record(ctx context.Context) error {
	if k.config.APIServerDefaults == config.KubernetesDefaults {
		return nil
	}
	own, err := join.ReadKeys(keyFiles(k.flags))
	if err != nil {
		return err
	}
	self, err := Self()
	if err != nil {
		return err
	}
	connect := func(context.Context) (*clientv3.Client, error) { return k.storage.Connect() }
	return k.withCluster(ctx, connect, func(ctx context.Context, cluster *join.Cluster) error {
		if k.replace {
			return cluster.Replace(ctx, own, self)
		}
		err := cluster.Check(ctx, own, self)
		mismatch, ok := errors.AsType[*join.MismatchError](err)
		switch {
		case !ok:
			return err
		case len(k.storage.Endpoints) == 0: // no other host has the old ones
			k.log.Warn("other keys than before: earlier service account tokens or client certificates are not accepted",
				"error", mismatch)
			return cluster.Replace(ctx, own, self)
		default:
			return fmt.Errorf("store.endpoints: %w; move %s away and %s", err, k.storage.Dir, howToJoin)
		}
	})
}

// howToJoin is what to do if a host does not have the keys of the cluster.
const howToJoin = `run "catena join TOKEN", with a token that "catena token create" prints on a host of the cluster, or copy ca.*, front-proxy-ca.* ` +
	`and sa.* from the pki directory of such a host; if none has them any more, "catena serve --replace-cluster-keys" makes those of this host the cluster's`

// checkJoined returns an error if this host has no keys yet, and would make some, where the cluster in the store has keys already.
func (k *clusterKeys) checkJoined(ctx context.Context) error {
	if len(k.storage.Endpoints) == 0 || k.replace {
		return nil
	}
	if _, err := os.Stat(k.flags.Value("service-account-signing-key-file")); err == nil {
		return nil
	}
	return k.withCluster(ctx, k.storage.Dial, func(ctx context.Context, cluster *join.Cluster) error {
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

func (k *clusterKeys) withCluster(
	ctx context.Context, connect func(context.Context) (*clientv3.Client, error),
	do func(context.Context, *join.Cluster) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	client, err := connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, join.Open(client, k.config.Store.Prefix))
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
