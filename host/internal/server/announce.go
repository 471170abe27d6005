package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/pki"
)

// announce writes admin.kubeconfig and, when the server is ready, prints
// how to reach it. With the defaults of kube-apiserver, there is no certificate for it.
func (r *run) announce(ctx context.Context) {
	if r.data.certificates == nil {
		return
	}
	path := datadir.AdminKubeconfig(r.data.storage.Dir)
	if err := r.writeAdminKubeconfig(path); err != nil {
		r.front.Fail(err)
		return
	}
	select {
	case <-r.front.Ready():
	case <-ctx.Done():
		r.interrupted(ctx)
		return
	}
	if guard.CheckAbove(r.data.storage.Dir) != nil { // users of the file would run what another user has put there
		fmt.Fprintf(r.Out, "ready after %s\n\n", time.Since(r.life.began).Round(10*time.Millisecond))
		return
	}
	// No user is in the directory of a service.
	if wd, err := os.Getwd(); err == nil && wd != "/" && !r.Systemd.IsNotified() {
		if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
			path = "$PWD/" + rel
		}
	}
	fmt.Fprintf(r.Out, "ready after %s; in another terminal:\n\n  export KUBECONFIG=%s\n  %s\n\n",
		time.Since(r.life.began).Round(10*time.Millisecond), path, firstCommand(r.chain.listedPaths()))
}

// firstCommand is a command that works with what the stages serve.
func firstCommand(listedPaths []string) string {
	if slices.Contains(listedPaths, "/api/v1") {
		return "kubectl get namespaces"
	}
	return "kubectl get --raw /"
}

// writeAdminKubeconfig makes the kubeconfig that trusts the certificate with which
// the server serves.
func (r *run) writeAdminKubeconfig(path string) error {
	var trust []byte
	if file := r.flags.Value("tls-cert-file"); r.flags.IsSetByOperator("tls-cert-file") {
		var err error
		if trust, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("apiserver.tls-cert-file: %w", err)
		}
	}
	if r.flags.IsSetByOperator("client-ca-file") {
		r.logs.host.Warn("admin.kubeconfig has a certificate that the authorities in apiserver.client-ca-file have not signed, unless the file holds this one too",
			"file", r.data.certificates.Files().CA)
	}
	return r.data.certificates.EnsureKubeconfig(path, pki.Admin(), r.front.LocalURL(), trust)
}
