package front

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apiserver/pkg/util/responsewriter"
)

// StageHandler is one stage, whatever it claims.
type StageHandler struct {
	Name string
	http.Handler
}

// SetServers sets the stages that are servers of Kubernetes: what a client changes of kube-apiserver's process is changed in
// each of them too.
func (f *Frontend) SetServers(stages []StageHandler) { f.servers.Store(&stages) }

// maxFlagValue is how long a value of /debug/flags may be.
const maxFlagValue = 64 << 10

// isEverywhere reports whether a request changes the process: metrics are reset, or a flag is set.
func isEverywhere(r *http.Request) bool {
	return r.Method == http.MethodDelete && r.URL.Path == "/metrics" || r.Method == http.MethodPut &&
		strings.HasPrefix(r.URL.Path, "/debug/flags/")
}

// everywhere has such requests served by own, and then by each of the stages. The response is that of own, or the first failure.
type everywhere struct {
	own    http.Handler
	stages *atomic.Pointer[[]StageHandler]
	// serve has a stage serve a request that has passed the filters.
	serve func(stage http.Handler, w http.ResponseWriter, r *http.Request)
}

// ServeHTTP implements http.Handler.
func (e everywhere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stages := e.stages.Load()
	if stages == nil || !isEverywhere(r) {
		e.own.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFlagValue))
	if err != nil {
		http.Error(w, "error reading request body: "+err.Error(), http.StatusBadRequest)
		return
	}
	again := func() *http.Request {
		r := r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return r
	}
	first := responsewriter.NewInMemoryResponseWriter()
	e.own.ServeHTTP(first, again())
	for _, stage := range *stages {
		if first.RespCode() != http.StatusOK {
			break
		}
		its := responsewriter.NewInMemoryResponseWriter()
		e.serve(stage, its, again())
		if its.RespCode() != http.StatusOK {
			http.Error(w, fmt.Sprintf("stage %q, and those downstream of it, stay as they are: %d %s", stage.Name,
				its.RespCode(), bytes.TrimSpace(its.Data())), http.StatusInternalServerError)
			return
		}
	}
	maps.Copy(w.Header(), first.Header())
	w.WriteHeader(first.RespCode())
	_, _ = w.Write(first.Data())
}
