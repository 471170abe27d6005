package kube

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emicklei/go-restful/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/common"
)

// documentKept is how long a document is kept after the last request for it.
const documentKept = time.Minute

// openAPIv3 serves the OpenAPI v3 documents of a server whose API does not change. They are made for the hashes in
// their index, and again when one is asked for: clients keep them, by these hashes. Kubernetes' server keeps them for
// good, with what they are made of, which is a third of what is live in core.
type openAPIv3 struct {
	config   *common.OpenAPIV3Config
	services func() []*restful.WebService
	// index returns the index, which is made once.
	index func() *index

	mu        sync.Mutex
	documents map[string]*keptDocument // by path
}

// index is the response to a request for the index of documents.
type index struct {
	header http.Header
	text   []byte
	made   time.Time
}

// keptDocument is one that was asked for.
type keptDocument struct {
	handler func() http.Handler
	expires *time.Timer
}

// serveOpenAPIv3 serves the documents of all that the server has when they are asked for first, here or by a client.
// GenericAPIServer must not: see SkipOpenAPIInstallation. The configuration is its own.
func serveOpenAPIv3(server *genericapiserver.GenericAPIServer, config *common.OpenAPIV3Config) *openAPIv3 {
	o := &openAPIv3{config: config, services: server.Handler.GoRestfulContainer.RegisteredWebServices,
		documents: map[string]*keptDocument{}}
	o.index = sync.OnceValue(o.makeIndex)
	server.Handler.NonGoRestfulMux.Handle(openAPIIndex, http.HandlerFunc(o.serveIndex))
	server.Handler.NonGoRestfulMux.HandlePrefix(openAPIIndex+"/", http.HandlerFunc(o.serveDocument))
	return o
}

// makeIndex makes all documents. What they are made of is not kept: for a single one, it is made of GetDefinitions.
func (o *openAPIv3) makeIndex() *index {
	documents := o.handler(o.services()...)
	o.config.Definitions = nil
	r, err := http.NewRequest(http.MethodGet, openAPIIndex, nil)
	if err != nil {
		panic(err) // the arguments are constants
	}
	w := responsewriter.NewInMemoryResponseWriter()
	documents.ServeHTTP(w, r)
	header := http.Header{"Content-Type": w.Header()["Content-Type"], "Etag": w.Header()["Etag"]}
	return &index{header: header, text: w.Data(), made: time.Now()}
}

// handler returns Kubernetes' handler for the documents of services.
func (o *openAPIv3) handler(services ...*restful.WebService) http.Handler {
	container, handler := restful.NewContainer(), mux.NewPathRecorderMux("openapi-v3")
	for _, service := range services {
		container.Add(service)
	}
	routes.OpenAPI{V3Config: o.config}.InstallV3(container, handler)
	return handler
}

func (o *openAPIv3) serveIndex(w http.ResponseWriter, r *http.Request) {
	index := o.index()
	maps.Copy(w.Header(), index.header)
	http.ServeContent(w, r, openAPIIndex, index.made, bytes.NewReader(index.text))
}

func (o *openAPIv3) serveDocument(w http.ResponseWriter, r *http.Request) {
	o.index() // has to be made first
	if document := o.document(strings.TrimPrefix(r.URL.Path, openAPIIndex)); document != nil {
		document.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// document returns the handler of the document of a path, or nil. It is kept for some time, also while it is being
// made.
func (o *openAPIv3) document(path string) http.Handler {
	o.mu.Lock()
	document, ok := o.documents[path]
	if !ok {
		all := o.services()
		i := slices.IndexFunc(all, func(s *restful.WebService) bool { return s.RootPath() == path })
		if i < 0 {
			o.mu.Unlock()
			return nil
		}
		document = &keptDocument{handler: sync.OnceValue(func() http.Handler { return o.handler(all[i]) })}
		document.expires = time.AfterFunc(documentKept, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			delete(o.documents, path)
		})
		o.documents[path] = document
	}
	document.expires.Reset(documentKept)
	o.mu.Unlock()
	return document.handler()
}
