package declared

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/sdk/klogr"
)

// FlagDefaults are kube-apiserver's flags as this server sets them if the operator does not.
func FlagDefaults(cfg *config.Config, storage store.Options) []front.Default {
	defaults := front.KubernetesDefaults()
	if cfg.APIServerDefaults == config.CatenaDefaults {
		defaults = front.Defaults(pki.FilesIn(datadir.PKI(storage.Dir)))
	}
	own := storage.Flags()
	own["etcd-prefix"] = cfg.Store.Prefix
	own["etcd-compaction-interval"] = cfg.Store.CompactionInterval.String()
	for _, name := range slices.Sorted(maps.Keys(own)) {
		defaults = append(defaults, front.Default{Flags: []string{name + "=" + own[name]}})
	}
	return defaults
}

// CheckFlags checks kube-apiserver's flags as a start would, without creating anything.
// What Kubernetes' code logs meanwhile says nothing that the errors do not. The flags are
// nil if they cannot be read.
func CheckFlags(ctx context.Context, cfg *config.Config) (*front.Flags, error) {
	if err := klogr.Install(hclog.NewNullLogger(), "", ""); err != nil {
		return nil, err
	}
	if entry, err := os.Stat(cfg.DataDir); errors.Is(err, syscall.ENOTDIR) || err == nil && !entry.IsDir() { // the flags name files in it
		return nil, fmt.Errorf("%s: dataDir: %s is not a directory", cfg.Where("dataDir"), cfg.DataDir)
	}
	if err := guard.CheckReadable(cfg.DataDir); err != nil { // nor can the flags' files be read
		return nil, fmt.Errorf("%s: dataDir: %w, or name another data directory", cfg.Where("dataDir"), err)
	}
	flags, err := front.ParseFlags(ctx, cfg.APIServer, FlagDefaults(cfg, StoreOptions(cfg, cfg.DataDir, "/run"))...)
	if err != nil {
		return nil, err
	}
	return flags, flags.Validate(ctx)
}
