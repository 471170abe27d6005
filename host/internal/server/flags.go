package server

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/sdk/klogr"
)

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
	r.flags, err = front.ParseFlags(ctx, r.Config.APIServer, declared.FlagDefaults(r.Config, r.data.storage)...)
	if err != nil {
		return problems.List(problems.Locate(r.Config, err))
	}
	if err := klogr.Install(r.logs.libraries.Named("front"), r.flags.Value("v"), r.flags.Value("vmodule")); err != nil {
		return err
	}
	warnLoosened(r.Config, r.logs.host)
	logVersions(r.logs.host, r.Version)
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
	if err := r.keys().checkJoined(ctx); err != nil {
		return err
	}
	own := pki.Options{Dir: datadir.PKI(r.data.storage.Dir), Hosts: r.flags.Hosts()}
	r.data.certificates, err = ensureCertificates(own, r.logs.host)
	return err
}
