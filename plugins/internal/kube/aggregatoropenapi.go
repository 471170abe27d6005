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

// emptyOpenAPI are documents that add nothing, by path.
var emptyOpenAPI = map[string]string{openAPIv2: emptyOpenAPIv2, openAPIIndex: `{"paths":{}}`}

// withoutOpenAPI is the handler of a stage that has no OpenAPI documents. Kubernetes merges
// those of v2 anew for each request, and would log each time that one is missing.
func withoutOpenAPI() http.Handler {
	mux := http.NewServeMux()
	for path, text := range emptyOpenAPI {
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

// validateOpenAPI serves an empty document in place of one of v2 that cannot be
// parsed, until next has had one that can, and logs when the document becomes malformed:
// Kubernetes does for each request for the merged one. From a document that becomes
// malformed later on, Kubernetes keeps the one before. In the same way it serves empty documents for an
// optional stage that fails to send any.
//
// Once there has been a document of version, it fails for those of another: while core goes from one release to another, an
// aggregator would merge both, and not get rid of that when core comes back. Kubernetes writes what it merges into what it keeps.
type validateOpenAPI struct {
	next     http.Handler
	log      hclog.Logger
	optional bool
	version  string // of the documents of v2; empty if it does not matter

	mu        sync.Mutex
	had       bool            // a document of version
	valid     map[string]bool // by path: there has been a document that can be read
	malformed bool            // the latest of v2 cannot
}

func (s *validateOpenAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if path != openAPIv2 && (path != openAPIIndex || !s.optional) {
		s.next.ServeHTTP(w, r)
		return
	}
	response := responsewriter.NewInMemoryResponseWriter()
	s.next.ServeHTTP(response, r)
	if path == openAPIv2 && response.RespCode() == http.StatusOK && s.ofAnotherVersion(response.Data()) {
		http.Error(w, "the document is not of version "+s.version, http.StatusServiceUnavailable)
		return
	}
	if !s.accept(path, response.RespCode(), response.Data()) {
		send(w, http.StatusOK, http.Header{"Content-Type": {"application/json"}}, []byte(emptyOpenAPI[path]))
		return
	}
	send(w, response.RespCode(), response.Header(), response.Data())
}

// ofAnotherVersion reports whether a document is not to be merged, because of its version.
func (s *validateOpenAPI) ofAnotherVersion(text []byte) bool {
	var document struct{ Info struct{ Version string } }
	if s.version == "" || json.Unmarshal(text, &document) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := document.Info.Version == s.version
	s.had = s.had || own
	return s.had && !own
}

// accept reports whether a response is passed on.
func (s *validateOpenAPI) accept(path string, code int, document []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	malformed := code == http.StatusUnprocessableEntity || code == http.StatusOK && path == openAPIv2 && !json.Valid(document)
	if path == openAPIv2 && (malformed || code == http.StatusOK) {
		if malformed && !s.malformed {
			s.log.Warn("OpenAPI document of a stage is malformed", "path", path)
		}
		s.malformed = malformed
	}
	if s.valid == nil {
		s.valid = map[string]bool{}
	}
	s.valid[path] = s.valid[path] || code == http.StatusOK && !malformed
	lacks := malformed || s.optional && code >= http.StatusInternalServerError
	return s.valid[path] || !lacks
}
