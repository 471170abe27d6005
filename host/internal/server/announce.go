package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/pki"
)

// announce writes admin.kubeconfig and, when the server is ready, prints
// how to reach it.
func (r *run) announce(ctx context.Context) {
	path := datadir.AdminKubeconfig(r.storage.Dir)
	if err := r.writeAdminKubeconfig(path); err != nil {
		r.front.Fail(err)
		return
	}
	for !r.ready(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
			path = "$PWD/" + rel
		}
	}
	fmt.Fprintf(r.Out, "ready after %s; in another terminal:\n\n  export KUBECONFIG=%s\n  kubectl get namespaces\n\n",
		time.Since(r.started).Round(10*time.Millisecond), path)
}

// ready asks the server's own /readyz. When ctx ends in the midst of that, the filters
// break the request off with a panic, which in a server would end the connection.
func (r *run) ready(ctx context.Context) (ok bool) {
	defer func() {
		if aborted := recover(); aborted != nil && aborted != http.ErrAbortHandler { //nolint:errorlint // panics with this very value
			panic(aborted)
		}
	}()
	req, err := http.NewRequestWithContext(front.WithLoopbackUser(ctx, "system:apiserver", []string{"system:masters"}), http.MethodGet, "/readyz", nil)
	if err != nil {
		return false
	}
	w := statusWriter{header: http.Header{}}
	r.front.Handler().ServeHTTP(&w, req)
	return w.status == http.StatusOK
}

// statusWriter is an http.ResponseWriter that keeps nothing but the status.
type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header { return w.header }

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *statusWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(p), nil
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
			"file", r.certificates.Files().CA)
	}
	return r.certificates.EnsureKubeconfig(path, pki.Admin(), r.front.LocalURL(), trust)
}
