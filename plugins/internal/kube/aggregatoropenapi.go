package kube

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/handler3"
)

const (
	openAPIv2 = "/openapi/v2"
	// emptyOpenAPIv2 adds nothing to the document that Kubernetes merges.
	emptyOpenAPIv2 = `{"swagger":"2.0","paths":{}}`
)

// withoutOpenAPI is the handler of a stage that has no OpenAPI documents. Kubernetes merges
// those of v2 anew for each request, and would log each time that one is missing.
func withoutOpenAPI() http.Handler {
	mux := http.NewServeMux()
	for path, text := range map[string]string{openAPIv2: emptyOpenAPIv2, openAPIIndex: `{"paths":{}}`} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		})
	}
	return mux
}

// untilPrepared is unavailable where next has no index of OpenAPI v3 documents, as long as
// prepared is not set. Kubernetes makes one of the document of v2 then, and panics if it has
// to before its PrepareRun has returned. It asks again a second later.
func untilPrepared(prepared *atomic.Bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != openAPIIndex || prepared.Load() {
			next.ServeHTTP(w, r)
			return
		}
		response := responsewriter.NewInMemoryResponseWriter()
		next.ServeHTTP(response, r)
		if response.RespCode() == http.StatusNotFound {
			http.Error(w, "the aggregator is not prepared yet", http.StatusServiceUnavailable)
			return
		}
		send(w, response.RespCode(), response.Header(), response.Data())
	})
}

// serverDocuments are the OpenAPI v3 documents of paths that each server has, in each release another.
var serverDocuments = []string{"apis", "version"}

// withoutServerDocuments leaves them out of the index of a stage: Kubernetes would take each now from one stage and then from another.
func withoutServerDocuments(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != openAPIIndex {
			next.ServeHTTP(w, r)
			return
		}
		response := responsewriter.NewInMemoryResponseWriter()
		next.ServeHTTP(response, r)
		var index handler3.OpenAPIV3Discovery
		if response.RespCode() != http.StatusOK || json.Unmarshal(response.Data(), &index) != nil {
			send(w, response.RespCode(), response.Header(), response.Data())
			return
		}
		for _, name := range serverDocuments {
			delete(index.Paths, name)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(index)
	})
}

func send(w http.ResponseWriter, code int, header http.Header, body []byte) {
	maps.Copy(w.Header(), header)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// validateOpenAPI serves an empty document in the place of one of v2 that cannot be
// parsed, until next has had one that can, and logs when the document becomes malformed:
// Kubernetes does for each request for the merged one. From a document that becomes
// malformed later on, Kubernetes keeps the one before.
type validateOpenAPI struct {
	next http.Handler
	log  hclog.Logger

	mu        sync.Mutex
	valid     bool // there has been a document that can be read
	malformed bool // the latest cannot
}

func (s *validateOpenAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != openAPIv2 {
		s.next.ServeHTTP(w, r)
		return
	}
	response := responsewriter.NewInMemoryResponseWriter()
	s.next.ServeHTTP(response, r)
	if response.RespCode() == http.StatusOK && !s.accept(response.Data()) {
		send(w, http.StatusOK, http.Header{"Content-Type": {"application/json"}}, []byte(emptyOpenAPIv2))
		return
	}
	send(w, response.RespCode(), response.Header(), response.Data())
}

// accept reports whether a document is passed on.
func (s *validateOpenAPI) accept(document []byte) bool {
	malformed := !json.Valid(document)
	s.mu.Lock()
	defer s.mu.Unlock()
	if malformed && !s.malformed {
		s.log.Warn("OpenAPI document of a stage is malformed", "path", openAPIv2)
	}
	s.malformed = malformed
	s.valid = s.valid || !malformed
	return s.valid
}
