package delegates

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/catena-dev/catena/sdk"
)

// openAPIv3 is the path of the index of OpenAPI v3 documents, which are below it.
const openAPIv2, openAPIv3 = "/openapi/v2", "/openapi/v3"

// OpenAPIv3 serves the OpenAPI v3 documents of several stages, and one index of all. A document comes from the
// first stage that has it. It asks the stages when it is asked, and never by itself.
type OpenAPIv3 struct {
	stages []sdk.Delegate

	mu sync.Mutex
	// indexes are the last ones that the stages have sent, in their order.
	indexes []Index
}

// NewOpenAPIv3 returns a handler for the paths /openapi/v3 and below.
func NewOpenAPIv3(stages []sdk.Delegate) *OpenAPIv3 {
	return &OpenAPIv3{stages: stages, indexes: make([]Index, len(stages))}
}

// ServeHTTP implements http.Handler.
func (o *OpenAPIv3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, openAPIv3), "/")
	if name == "" {
		o.serveIndex(w, r)
		return
	}
	stage := o.owner(name)
	if stage == nil {
		o.refresh(r.Context()) // it may be new
		stage = o.owner(name)
	}
	if stage == nil {
		http.NotFound(w, r)
		return
	}
	stage.ServeHTTP(w, r)
}

func (o *OpenAPIv3) serveIndex(w http.ResponseWriter, r *http.Request) {
	o.refresh(r.Context())
	text, err := json.Marshal(handler3.OpenAPIV3Discovery{Paths: o.merged()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, openAPIv3, time.Time{}, bytes.NewReader(text))
}

// merged returns the index of all documents.
func (o *OpenAPIv3) merged() Index {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := Index{}
	for _, documents := range o.indexes {
		for name, document := range documents {
			if _, ok := all[name]; !ok {
				all[name] = document
			}
		}
	}
	return all
}

// owner returns the first stage that has a document, or nil.
func (o *OpenAPIv3) owner(name string) http.Handler {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, documents := range o.indexes {
		if _, ok := documents[name]; ok {
			return o.stages[i].Handler
		}
	}
	return nil
}

// refresh asks all stages at once for their indexes. That of a stage which does not respond stays as it was.
func (o *OpenAPIv3) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var all sync.WaitGroup
	for i, stage := range o.stages {
		all.Go(func() {
			documents, status, err := IndexOf(ctx, stage.Handler)
			if err != nil || status != http.StatusOK {
				return // the stage's discovery fails too, and is logged
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.indexes[i] = documents
		})
	}
	all.Wait()
}
