package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/sdk/klogr"
)

// StoreOptions say which etcd a configuration means, and how to reach it: at the socket of a host that runs, or at one
// that is to be. The directories are absolute.
func StoreOptions(cfg *config.Config, dir, runtimeDir string) store.Options {
	c, socket := cfg.Store, filepath.Join(runtimeDir, guard.SecretName(storeSocket, ".sock"))
	if found, err := filepath.Glob(filepath.Join(runtimeDir, storeSocket+"-*.sock")); err == nil && len(found) == 1 {
		socket = found[0]
	}
	return store.Options{
		Dir: dir, Socket: socket, QuotaBytes: c.QuotaBytes,
		Endpoints: c.Endpoints, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, Revisions: new(store.Revisions),
	}
}

// storeSocket begins the name of etcd's socket. No stage has a name with a dot.
const storeSocket = "host.etcd"

// flagDefaults are kube-apiserver's flags as this server sets them if the operator does not.
func flagDefaults(cfg *config.Config, storage store.Options) []front.Default {
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
	flags, err := front.ParseFlags(ctx, cfg.APIServer, flagDefaults(cfg, StoreOptions(cfg, cfg.DataDir, "/run"))...)
	if err != nil {
		return nil, err
	}
	return flags, flags.Validate(ctx)
}

// warnLoosened logs that a layer of the configuration takes back the authorization of another.
func warnLoosened(cfg *config.Config, log hclog.Logger) {
	if l := cfg.Loosened(); l != nil {
		log.Warn("everything is allowed: a layer of the configuration takes back the authorization that an earlier one has set",
			"authorization-mode", l.Mode, "layer", l.Source, "earlier", l.Before)
	}
}

// parseFlags completes kube-apiserver's flags, for the front and all stages, and makes the
// certificates and keys that they name.
func (r *run) parseFlags(ctx context.Context) error {
	var err error
	if r.flags, err = front.ParseFlags(ctx, r.Config.APIServer, flagDefaults(r.Config, r.storage)...); err != nil {
		return problems.List(problems.Locate(r.Config, err))
	}
	if err := klogr.Install(r.logs.libraries.Named("front"), r.flags.Value("v"), r.flags.Value("vmodule")); err != nil {
		return err
	}
	warnLoosened(r.Config, r.logs.host)
	r.logVersions()
	r.flags.Print()
	for _, warning := range r.flags.Deprecated() {
		r.logs.host.Warn(warning)
	}
	if err := r.flags.Validate(ctx); err != nil {
		return problems.List(problems.Locate(r.Config, err))
	}
	if r.Config.APIServerDefaults == config.KubernetesDefaults {
		return nil
	}
	if err := r.checkJoined(ctx); err != nil {
		return err
	}
	r.certificates, err = ensureCertificates(pki.Options{Dir: datadir.PKI(r.storage.Dir), Hosts: r.flags.Hosts()}, r.logs.host)
	return err
}
